import json
from pathlib import Path
from typing import Any

import pytest

from feal.rundir.records import Note, Round, read_log
from tests.records import fields, record

GOOD = fields(1, diagnostics={"recall": [0.5, None, 1]})
READ = Round.model_validate(GOOD)


def written(log: Path, *lines: object) -> int:
    """A log of these lines, each a record or a text as it is; its length in bytes."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    log.write_text(text)
    return len(text.encode())


def test_good_records_are_all_there(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    lines = [{"event": "note", "note": "x"}, GOOD, {"event": "of a later version"}, fields(2, accuracy=None)]
    records, problems = read_log(log, length=written(log, *lines), classes=3)
    assert list(records) == [Note(note="x"), READ, record(2, accuracy=None)]
    assert problems == ()


def test_what_is_not_committed_is_not_looked_at(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    length = written(log, GOOD)
    log.write_text(log.read_text() + "left over from a ki")
    assert read_log(log, length=length, classes=3) == ((READ,), ())
    assert read_log(log, length=0, classes=3) == ((), ())


FIGURES = GOOD["metrics"]["balanced_accuracy"]
BAD = {**GOOD, "round": 2}
"""Good, until something is changed."""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (json.dumps(GOOD)[:40], "no record can be read there"),
        ("", "no record can be read there"),
        ("not JSON", "no record can be read there"),
        ("[1, 2]", "no record can be read there"),
        ('{"round": 2}', "no record can be read there"),
        ("[" * 100_000, "no record can be read there"),
        ({key: value for key, value in BAD.items() if key != "labels"}, "labels is not valid"),
        ({**BAD, "round": "2"}, "round is not valid"),
        ({**BAD, "round": 0}, "round is not valid"),
        ({**BAD, "round": True}, "round is not valid"),
        ({**BAD, "round": 1}, "round 1 occurs a second time"),
        ({**BAD, "labels": [4, 6]}, "labels is not valid"),
        ({**BAD, "labels": {"alder": -4}}, "labels.alder is not valid"),
        ({**BAD, "metrics": {"dice": 0.5}}, "metrics.dice is not valid"),
        ({**BAD, "metrics": {"dice": {"mean": 0.5}}}, "metrics.dice.pooled is not valid"),
        (
            {**BAD, "metrics": {"dice": {**FIGURES, "pooled": float("nan")}}},
            "metrics.dice.pooled is not valid (Input should be a finite number)",
        ),
        ({**BAD, "metrics": {"dice": {**FIGURES, "mean": "0.5"}}}, "metrics.dice.mean is not valid"),
        ({**BAD, "diagnostics": {"recall": [0.5]}}, "diagnostics.recall has 1 values for 3 classes"),
        ({"event": "step", "step": 0, "loss": {}}, "round is not valid"),
        ({"event": "step", "round": 1, "loss": [0.5]}, "loss is not valid"),
        ({**BAD, "energy": {"alder": [1, "2"]}}, "energy.alder.1 is not valid"),
        ({**BAD, "seconds": {"training": float("inf")}}, "seconds.training is not valid"),
    ],
)
def test_a_line_that_cannot_be_used_is_told_by_its_number_and_the_rest_is_used(
    tmp_path: Path, line: Any, why: str
) -> None:
    log = tmp_path / "metrics.jsonl"
    last = record(3)
    records, problems = read_log(log, length=written(log, GOOD, line, fields(3)), classes=3)
    assert list(records) == [READ, last]
    (problem,) = problems
    assert problem.startswith(f"{log}, line 2: {why}")
    assert problem.endswith(", so it is left out.")


def test_a_line_that_is_damaged_afterwards_costs_no_other(tmp_path: Path) -> None:
    log, last = tmp_path / "metrics.jsonl", record(3)
    length = written(log, GOOD, BAD, fields(3))
    one, two, three = log.read_text().splitlines(keepends=True)
    log.write_text(one + "garbage garbage " + two + three + '{"half a line')
    records, problems = read_log(log, length=length, classes=3)
    assert list(records) == [READ, last]
    assert [problem.startswith(f"{log}, line 2: ") for problem in problems] == [True]
    log.write_text(one + "{\n" + three)
    records, problems = read_log(log, length=length, classes=3)
    assert list(records) == [READ, last]
    assert problems[1] == f"{log} is shorter than what was written: its last metrics may be missing."


def test_an_empty_log_and_none(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("")
    assert read_log(log, length=9, classes=3) == (
        (),
        (f"{log} is shorter than what was written: its last metrics are missing.",),
    )
    log.unlink()
    assert "cannot be read (No such file" in read_log(log, length=9, classes=3)[1][0]
