"""What the README tells people to type works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from tests.command import Command
from tests.paths import PROJECT

README = (PROJECT / "README.md").read_text()


def _commands() -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("feal ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.slow
def test_the_commands_of_the_readme_in_their_order(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = _commands()
    assert len(commands) >= 6
    for words in [["run", "demo"], *commands]:
        ended = command(*words)
        assert ended.code == 0, f"feal {' '.join(words)}: {ended.err}"


def test_every_page_that_is_linked_exists() -> None:
    for page in PROJECT.glob("*.md"), PROJECT.glob("docs/*.md"):
        for path in page:
            prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
            for target in re.findall(r"\]\(([^)#:]+)\)", prose):
                assert (path.parent / target).exists(), f"{path.name} links {target}"


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert f"\n{target}:" in makefile
