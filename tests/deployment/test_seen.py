"""What is kept of sites' last words."""

from pathlib import Path

import pytest

from feal.deployment.seen import LONGEST_PROBLEM, Seen, read_seen, write_seen
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


def test_a_failed_reply_takes_nothing_back_and_odd_values_are_left_out(tmp_path: Path) -> None:
    seen = Seen(run="runs/one", sites={})
    seen = seen.told("alder", {"version": "1.2", "labelled": 10, "pending": 4}, message="join", round=0, step=0)
    failed = {"status": "failed", "reason": "no space", "version": "", "labelled": 0, "pending": 0}
    seen = seen.told("alder", failed, message="train", round=1, step=1)
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending, said.problem) == ("1.2", 10, 4, "no space")
    odd = {"version": ["1"], "labelled": float("nan"), "pending": True, "reason": "x" * 10**6}
    seen = seen.told("alder", odd, message="train", round=1, step=2)
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending) == ("1.2", 10, 4)
    assert len(said.problem) == LONGEST_PROBLEM
    write_seen(tmp_path / "seen.json", seen)
    assert read_seen(tmp_path / "seen.json") == seen


def test_a_damaged_note_is_told(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text('{"sites": []}')
    with pytest.raises(FealError, match="cannot be read: remove it"):
        read_seen(tmp_path / "seen.json")
