"""Imports point downwards: config, then what reads runs, what makes them, and what everybody stands on."""

import ast
from collections.abc import Iterator

import pytest

from tests.paths import PROJECT

LAYERS = [
    {"cli", "testing", "__init__"},
    {"config"},
    {"analysis"},
    {"inference"},
    {"experiment"},
    {"federation"},
    {"deployment"},
    {"selection", "annotation"},
    {"data", "models", "evidential"},
    {"classes"},
    {"settings", "files", "processes", "randomness", "registry"},
    {"tensors"},
    {"errors", "version"},
]
SOURCE = PROJECT / "src" / "feal"
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: object) -> None:
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for name in _imports(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] != "feal" or len(parts) < 2 or parts[1] not in LEVEL or parts[1] == own:
            continue
        assert LEVEL[parts[1]] > LEVEL[own], f"{own} imports {name}"


@pytest.mark.parametrize("package", ["evidential", "selection"])
def test_mathematics_touches_no_file_clock_or_global_generator(package: str) -> None:
    # The streaming pass keeps wide columns on disk.
    allowed = {"observation.py"}
    for path in (SOURCE / package).rglob("*.py"):
        if path.name in allowed:
            continue
        names = set(_imports(ast.parse(path.read_text())))
        forbidden = {"os", "time", "pathlib", "random", "tempfile", "sqlite3", "feal.files"}
        assert not names & forbidden, f"{path.name}: {names & forbidden}"
