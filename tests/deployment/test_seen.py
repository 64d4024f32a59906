"""What is kept of sites' last words."""

from pathlib import Path

import pytest

from feal.deployment.seen import Seen, read_seen, write_seen
from feal.errors import FealError


def test_words_are_kept_until_others_come(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    assert read_seen(path) is None
    seen = Seen(run="runs/one", sites={})
    seen = seen.told("alder", {"version": "1.2", "labelled": 0}, message="join", round=0, step=0)
    seen = seen.told("alder", {"labelled": 5, "pending": 2, "reason": ""}, message="close_round", round=0, step=0)
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending, said.message) == ("1.2", 5, 2, "close_round")
    seen = seen.told("alder", {"problem": "Site alder is away."}, message="train", round=1, step=3)
    away = seen.sites["alder"]
    assert (away.at, away.problem, away.round, away.step) == (said.at, "Site alder is away.", 1, 3)
    write_seen(path, seen)
    assert read_seen(path) == seen


def test_a_damaged_note_is_told(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text('{"sites": []}')
    with pytest.raises(FealError, match="cannot be read: remove it"):
        read_seen(tmp_path / "seen.json")
