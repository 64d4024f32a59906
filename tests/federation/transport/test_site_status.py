"""The status file of the sites."""

from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.flower_deployment import (
    MAX_PROBLEM_CHARACTERS,
    StatusFile,
    read_site_status,
    write_site_status,
)


def test_a_status_is_kept_until_the_next_reply(tmp_path: Path) -> None:
    path = tmp_path / "site-status.json"
    assert read_site_status(path) is None
    seen = StatusFile(run="runs/one", sites={})
    seen = seen.with_reply("alder", {"version": "1.2", "labelled": 0}, message="join", round=0, step=0)
    seen = seen.with_reply(
        "alder", {"labelled": 5, "pending": 2, "reason": ""}, message="close_round", round=0, step=0
    )
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending, said.message) == ("1.2", 5, 2, "close_round")
    seen = seen.with_reply("alder", {"problem": "Site alder is away."}, message="train", round=1, step=3)
    away = seen.sites["alder"]
    assert (away.at, away.problem, away.round, away.step) == (said.at, "Site alder is away.", 1, 3)
    write_site_status(path, seen)
    assert read_site_status(path) == seen


def test_a_failed_reply_keeps_the_status_and_invalid_values_are_ignored(tmp_path: Path) -> None:
    seen = StatusFile(run="runs/one", sites={})
    seen = seen.with_reply(
        "alder", {"version": "1.2", "labelled": 10, "pending": 4}, message="join", round=0, step=0
    )
    failed = {"status": "failed", "reason": "no space", "version": "", "labelled": 0, "pending": 0}
    seen = seen.with_reply("alder", failed, message="train", round=1, step=1)
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending, said.problem) == ("1.2", 10, 4, "no space")
    odd = {"version": ["1"], "labelled": float("nan"), "pending": True, "reason": "x" * 10**6}
    seen = seen.with_reply("alder", odd, message="train", round=1, step=2)
    said = seen.sites["alder"]
    assert (said.version, said.labelled, said.pending) == ("1.2", 10, 4)
    assert len(said.problem) == MAX_PROBLEM_CHARACTERS
    write_site_status(tmp_path / "site-status.json", seen)
    assert read_site_status(tmp_path / "site-status.json") == seen


def test_a_damaged_status_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "site-status.json").write_text('{"sites": []}')
    with pytest.raises(FealError, match="cannot be read: remove it"):
        read_site_status(tmp_path / "site-status.json")
