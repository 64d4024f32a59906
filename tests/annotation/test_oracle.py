"""The oracle, and the proof that nothing but it and the evaluation reads a hidden label."""

from pathlib import Path

import numpy as np
import pytest

from feal.annotation import Oracle, PollResult, Query
from feal.config import load
from feal.data import open_labels, open_prepared
from feal.errors import FealError
from feal.experiment import start
from tests.prepared import note_checksums, write_prepared
from tests.runs import differences, fingerprint, labels


def _query(sample: str) -> Query:
    return Query(sample=sample, round=1, rank=1, score=0.0, model="")


def test_it_reveals_the_truth_of_what_is_asked(tmp_path: Path) -> None:
    site = open_prepared(write_prepared(tmp_path / "data")).site("alder")
    oracle = Oracle(site, folder=tmp_path)
    asked = ["alder-0007", "alder-0002"]
    oracle.ask([_query(sample) for sample in asked], predict_masks=None)
    answers = oracle.poll(pending=asked, answered=["alder-0001"]).answers
    assert [answer.sample for answer in answers] == asked
    assert [answer.label for answer in answers] == open_labels(site).of(asked).tolist() == [1, 2]
    assert oracle.poll(pending=[], answered=asked) == PollResult()


def test_an_unknown_sample_is_refused(tmp_path: Path) -> None:
    oracle = Oracle(open_prepared(write_prepared(tmp_path / "data")).site("alder"), folder=tmp_path)
    with pytest.raises(FealError, match="nobody"):
        oracle.poll(pending=["nobody"], answered=[])


@pytest.mark.parametrize("strategy", ["feal", "random"])
def test_labels_never_asked_for_change_nothing(tmp_path: Path, strategy: str) -> None:
    data = write_prepared(tmp_path / "data")
    settings = load(
        "demo",
        {
            "dataset": str(data),
            "strategy": strategy,
            "rounds": 2,
            "communication_rounds": 2,
            "budget": 4,
            "training.batch_size": 4,
        },
    )
    first = start(settings, out=tmp_path / "first").folder
    hidden = 0
    for name in ("alder", "birch"):
        site = open_prepared(data).site(name)
        asked = {row[0] for row in labels(first / "sites" / name / "site.sqlite")}
        unasked = [sample for sample in site.ids("train").tolist() if sample not in asked]
        truth = np.load(data / name / "truth.npy", mmap_mode="r+")
        rows = site.rows(unasked)
        truth[rows] = (truth[rows] + 1) % 3
        truth.flush()
        note_checksums(data, name)
        hidden += len(unasked)
    assert hidden > 20
    second = start(settings, out=tmp_path / "second").folder
    assert differences(fingerprint(first), fingerprint(second)) == []


def test_a_label_that_is_asked_for_changes_the_run(tmp_path: Path) -> None:
    """The counter-proof: the comparison above can fail."""
    data = write_prepared(tmp_path / "data")
    settings = load(
        "demo",
        {"dataset": str(data), "rounds": 1, "communication_rounds": 1, "budget": 4, "training.batch_size": 4},
    )
    first = start(settings, out=tmp_path / "first").folder
    sample = labels(first / "sites" / "alder" / "site.sqlite")[0][0]
    truth = np.load(data / "alder" / "truth.npy", mmap_mode="r+")
    row = open_prepared(data).site("alder").rows([sample])[0]
    truth[row] = (truth[row] + 1) % 3
    truth.flush()
    note_checksums(data, "alder")
    second = start(settings, out=tmp_path / "second").folder
    assert "weights/round-001.safetensors" in differences(fingerprint(first), fingerprint(second))
