"""The command line, called in this process."""

import sys
from dataclasses import dataclass

import pytest

from feal.cli import main


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Command:
    """`feal` with the words of a command line."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *words: object) -> Ended:
        self.monkeypatch.setattr(sys, "argv", ["feal", *map(str, words)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, printed.out, printed.err)
