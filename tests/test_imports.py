"""The mathematics touches no file, clock or global generator."""

import ast
from collections.abc import Iterator

import pytest

from tests.paths import PROJECT

SOURCE = PROJECT / "src" / "feal"


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("package", ["evidential", "selection"])
def test_mathematics_touches_no_file_clock_or_global_generator(package: str) -> None:
    # The streaming pass keeps wide columns on disk.
    allowed = {"observe.py"}
    for path in (SOURCE / package).rglob("*.py"):
        if path.name in allowed:
            continue
        names = set(_imports(ast.parse(path.read_text())))
        forbidden = {"os", "time", "pathlib", "random", "tempfile", "sqlite3", "feal.fileio"}
        assert not names & forbidden, f"{path.name}: {names & forbidden}"
