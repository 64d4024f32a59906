"""Every example of the API page runs, in the order of the page."""

import re
from pathlib import Path

import pytest

from feal.config import read_preset
from tests.paths import PROJECT

SMALLER = {"dataset": {"name": "synthetic-lesions", "sites": 2, "train": 80, "test": 16}}


@pytest.mark.slow
def test_the_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("feal.config.resolve.read_preset", lambda name: {**read_preset(name), **SMALLER})
    page = (PROJECT / "docs" / "api.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)
    assert (tmp_path / "runs" / "small").is_dir()
