import sys
from pathlib import Path

import pytest

from feal import __version__
from feal.data import open_prepared
from feal.experiment import resume, start
from feal.rundir.artifacts import read_origins, record_origin
from feal.rundir.layout import RunDirectory
from tests.people import data_of
from tests.runs import tiny


def test_a_run_notes_what_it_was_made_by(tmp_path: Path) -> None:
    settings = tiny(rounds=1, communication_rounds=1)
    run = start(settings, out=tmp_path / "run").folder
    resume(run)
    (entry,) = read_origins(run)
    assert (entry.feal, entry.command) == (__version__, None)
    assert entry.python == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "numpy"} <= entry.packages.keys()
    assert entry.manifest == open_prepared(data_of(settings).root).digest


def test_another_command_or_version_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunDirectory(tmp_path)
    for words in (["feal", "run", "my preset"], ["/bin/feal", "resume", "x"], ["feal", "resume", "x"], ["pytest"]):
        monkeypatch.setattr(sys, "argv", words)
        record_origin(folder, manifest="abc")
    assert [entry.command for entry in read_origins(tmp_path)] == ["feal run 'my preset'", "feal resume x", None]


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]", "null"])
def test_a_damaged_note_is_none(tmp_path: Path, content: str) -> None:
    RunDirectory(tmp_path).origin.write_text(content)
    assert read_origins(tmp_path) == []
    record_origin(RunDirectory(tmp_path), manifest="abc")
    assert len(read_origins(tmp_path)) == 1
