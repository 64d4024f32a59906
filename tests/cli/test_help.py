"""What `feal --help` prints for every command, as a golden file: `python -m tests.cli.test_help` writes it."""

import os
from pathlib import Path

import click
import typer.main
from click.testing import CliRunner

from feal.cli.app import app

GOLDEN = Path(__file__).parents[1] / "golden" / "help.txt"


def help_pages() -> str:
    """Collect the help of `feal` and of each of its commands, 100 columns wide."""
    group = typer.main.get_command(app)
    pages = []
    for words in _commands(group, ()):
        os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
        result = CliRunner().invoke(group, [*words, "--help"], prog_name="feal", color=False)
        assert result.exit_code == 0, result.output
        lines = [line.rstrip() for line in click.unstyle(result.output).splitlines()]
        pages.append("\n".join([f"$ feal {' '.join([*words, '--help'])}", *lines]))
    return "\n".join(pages) + "\n"


def _commands(command: click.Command, words: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = [words]
    for name, sub in sorted(getattr(command, "commands", {}).items()):
        found += _commands(sub, (*words, name))
    return found


def test_help_is_what_it_was() -> None:
    assert help_pages() == GOLDEN.read_text()


if __name__ == "__main__":
    GOLDEN.write_text(help_pages())
