import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feal.analysis.arms import make_arms, make_curve, read_curve
from feal.analysis.runs import open_run
from feal.data.synthetic.lesions import LESION_CLASSES
from feal.errors import FealError
from feal.experiment import Result, start
from feal.federation.callbacks import NullCallback
from tests.analysis.made import ENTROPY, FULL, RANDOM, made
from tests.runs import differences, fingerprint, labels, tiny, tiny_polyps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A finished run."""
    return start(tiny(seed=3, strategy="random"), out=tmp_path_factory.mktemp("runs") / "whole")


class Stop(NullCallback):
    """Ends the process's part in a run after its first round."""

    def on_round(self, record: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_curve_is_what_the_summary_says(run: Result) -> None:
    curve = read_curve(run.folder)
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (curve.arm, curve.seed, curve.task) == ("random-plain", 3, "classification")
    assert curve.finished
    assert curve.classes == LESION_CLASSES[:5]
    assert [point.round for point in curve.points] == [1, 2]
    for point, record in zip(curve.points, summary["rounds"], strict=True):
        assert point.labels == sum(record["labels"].values())
        assert point.labels_per_site == np.mean(list(record["labels"].values()))
        for name, figures in record["metrics"].items():
            assert (point.pooled[name], point.mean[name]) == (figures["pooled"], figures["mean"])
        assert list(point.recall) == record["diagnostics"]["recall"]
        assert point.zero_evidence == record["diagnostics"]["zero_evidence"]
        assert point.seconds == pytest.approx(sum(record["seconds"].values()))
    pooled = [record["metrics"]["balanced_accuracy"]["pooled"] for record in summary["rounds"]]
    assert curve.values().tolist() == pooled
    assert curve.values("accuracy", over="mean").tolist() == [
        record["metrics"]["accuracy"]["mean"] for record in summary["rounds"]
    ]
    assert curve.labels().tolist() == [5, 10]
    assert curve.recall().shape == curve.found().shape == (2, 5)


def test_labels_found_are_counted_by_class_up_to_the_round(run: Result) -> None:
    expected = np.zeros((2, 5))
    for site in (run.folder / "sites").iterdir():
        for _, asked, _, _, _, label, *_ in labels(site / "site.sqlite"):
            expected[asked - 1 :, label] += 1
    curve = read_curve(run.folder)
    assert curve.found().tolist() == expected.tolist()
    assert curve.found().sum(axis=1).tolist() == [point.labels for point in curve.points]


def test_corrections_count_and_samples_without_a_label_do_not(run: Result, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    before = read_curve(copy).found()
    store = next((copy / "sites").iterdir()) / "site.sqlite"
    with closing(sqlite3.connect(store)) as connection, connection:
        (corrected, old), (declined, other) = connection.execute(
            "SELECT sample, label FROM labels WHERE round = 2 ORDER BY sample LIMIT 2"
        ).fetchall()
        new = (old + 1) % 5
        connection.execute(
            "INSERT INTO superseded SELECT sample, label, mask, height, width, answered, answered_by FROM labels "
            "WHERE sample = ?",
            (corrected,),
        )
        connection.execute("UPDATE labels SET label = ?, corrected = 1 WHERE sample = ?", (new, corrected))
        connection.execute("UPDATE labels SET label = NULL WHERE sample = ?", (declined,))
    change = np.zeros((2, 5))
    change[1, old] -= 1
    change[1, new] += 1
    change[1, other] -= 1
    assert (read_curve(copy).found() - before).tolist() == change.tolist()


@pytest.mark.slow
def test_segmentation_counts_pixels(tmp_path: Path) -> None:
    result = start(tiny_polyps(strategy="random"), out=tmp_path / "run")
    curve = read_curve(result.folder, arm="mine")
    assert (curve.arm, curve.task, curve.classes) == ("mine", "segmentation", ("background", "polyp"))
    assert curve.values().tolist() == [record.metrics["dice"].pooled for record in result.rounds]
    assert curve.found().sum(axis=1).tolist() == [2 * 3 * 32 * 32, 2 * 6 * 32 * 32]
    assert (curve.found()[:, 1] > 0).all()


def test_a_run_under_way_gives_its_finished_rounds_and_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(tiny(strategy="random"), out=tmp_path / "run", callback=Stop())
    before = fingerprint(tmp_path / "run")
    curve = read_curve(tmp_path / "run")
    assert not curve.finished
    assert [point.round for point in curve.points] == [1]
    # The labels of the next round are asked for already; this one was not trained on them.
    assert curve.found().sum() == curve.points[0].labels == 10
    assert differences(before, fingerprint(tmp_path / "run")) == []


def test_sites_without_a_test_part_have_no_figures(tmp_path: Path) -> None:
    synthetic = {"sites": 2, "train": 40, "test": 0, "classes": 5}
    result = start(tiny(strategy="random", dataset=synthetic), out=tmp_path / "run")
    curve = read_curve(result.folder)
    assert np.isnan(curve.values()).all()
    assert np.isnan(curve.recall()).all()
    assert curve.found().shape == curve.recall().shape == (2, 5)


def test_labels_are_counted_only_where_asked_for(run: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_curve(run.folder, arm="a")
    monkeypatch.setattr("feal.rundir.site_store.Store.__init__", None)
    curve = make_curve(open_run(run.folder), arm="a")
    assert [point.pooled for point in curve.points] == [point.pooled for point in whole.points]
    assert (curve.values().tolist(), curve.labels().tolist()) == (whole.values().tolist(), whole.labels().tolist())
    with pytest.raises(ValueError, match="found=True"):
        curve.found()


@pytest.mark.parametrize("what", ["nothing", "cut log", "no begin", "no facts", "store"])
def test_what_is_no_run_is_one_sentence(run: Result, tmp_path: Path, what: str) -> None:
    copy = tmp_path / "copy"
    if what == "nothing":
        copy.mkdir()
    else:
        shutil.copytree(run.folder, copy)
    if what == "cut log":
        (copy / "metrics.jsonl").write_text("")
    elif what == "no begin":
        (copy / "state.json").unlink()
    elif what == "no facts":
        state = json.loads((copy / "state.json").read_text())
        (copy / "state.json").write_text(json.dumps({**state, "facts": {}}))
    elif what == "store":
        next((copy / "sites").iterdir()).joinpath("site.sqlite").write_bytes(b"nonsense" * 999)
    with pytest.raises(FealError, match="copy"):
        read_curve(copy)


def test_arms_stand_as_in_the_paper() -> None:
    feal = made("feal", 0, (0.1, 0.2, 0.3))
    others = [made("entropy", 0, (0.1,), **{"strategy.query_model": model}) for model in ("ensemble", "global")]
    arms = make_arms([feal, *ENTROPY, *RANDOM, *others, made("badge", 0, (0.1,)), *FULL])
    assert [arm.name for arm in arms] == [
        "full", "random", "badge global", "entropy global", "entropy local", "entropy ensemble", "feal",
    ]  # fmt: skip
    assert [arm.is_full for arm in arms] == [True, *[False] * 6]
    entropy = arms[4]
    assert (entropy.strategy, entropy.query_model, entropy.differences, entropy.loss) == (
        "entropy",
        "local",
        "",
        "plain",
    )


def test_what_tells_arms_apart_is_said_once() -> None:
    runs = [made("entropy", 0, (0.1,), loss=loss) for loss in ("plain", "balanced")]
    assert [(arm.strategy, arm.query_model, arm.differences) for arm in make_arms(runs)] == [
        ("entropy", "global", "balanced"),
        ("entropy", "global", "plain"),
    ]
    runs = [made("random", 0, (0.1,), budget=budget) for budget in (3, 5)]
    assert [arm.differences for arm in make_arms(runs)] == ["plain, budget=3", "plain, budget=5"]


def test_an_unfinished_run_is_left_out_beside_finished_ones_and_said() -> None:
    running = made("random", 2, (0.9,), stage="train")
    (arm,) = make_arms([*RANDOM, running])
    assert [curve.seed for curve in arm.curves] == [0, 1]
    assert arm.remarks() == ["random is unfinished: seed 2 (1 of 3 rounds); left out, as others are finished."]
    (alone,) = make_arms([made("random", 2, (0.9,), stage="waiting")])
    assert not alone.is_finished
    assert [curve.seed for curve in alone.curves] == [2]
    assert alone.complete_curves == ()
    assert alone.remarks() == [
        "random is unfinished: seed 2 (1 of 3 rounds, waiting for labels); shown up to their last complete round."
    ]


def test_a_run_that_lacks_a_round_is_not_whole_whichever_it_is() -> None:
    for missing in (1, 2, 3):
        broken = made("random", 2, (0.1, 0.2, 0.3), missing=missing, problems=("line 7",))
        (arm,) = make_arms([*RANDOM, broken])
        assert [curve.seed for curve in arm.curves] == [0, 1, 2]
        assert [curve.seed for curve in arm.complete_curves] == [0, 1]
        assert arm.remarks() == ["line 7"]
