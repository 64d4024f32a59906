import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.study_tables import (
    make_study,
    tabulate_arms_by_round,
    tabulate_classes,
    tabulate_differences,
    tabulate_points,
    tabulate_runs,
    tabulate_summaries,
)

from feal.analysis.arms import Measure
from feal.analysis.compare import subtract_arms
from feal.analysis.runs import Run
from feal.analysis.tables import write_csv
from feal.errors import FealError
from feal.rundir.records import Diagnostics
from tests.analysis.made import LABELS, made


def run(seed: int, values: Sequence[float]) -> Run:
    """Two sites, two classes, of which only the first has test samples."""
    whole = made("random", seed, values)
    events = [
        record.model_copy(update={"diagnostics": Diagnostics(recall=[value, None], zero_evidence=0.0)})
        for record, value in zip(whole.rounds, values, strict=True)
    ]
    return replace(whole, events=tuple(events))


@pytest.fixture(autouse=True)
def half_of_the_labels_are_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.study_tables.count_found_labels",
        lambda run: np.array([[count, count] for count in LABELS[: len(run.rounds)]], dtype=float),
    )


RANDOM = [run(0, (0.2, 0.3, 0.4)), run(1, (0.4, 0.5, 0.6))]
FEAL = [run(1, (0.4, 0.6, 0.8)), run(0, (0.2, 0.5, 0.5)), run(7, (0.0, 0.0, 0.0))]
BY_ARM = {"random": RANDOM, "feal": FEAL}


def test_arms_keep_their_order_and_seeds_are_sorted() -> None:
    arms = make_study({"feal": FEAL, "random": RANDOM})
    assert list(arms) == ["feal", "random"]
    assert arms["feal"].seeds == [0, 1, 7]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"feal": [run(2, (0.1, 0.2))]}, "differ in"),
        ({"feal": [replace(FEAL[0], state=replace(FEAL[0].state, facts={"classes": ["a", "b"]}))]}, "differ in"),
        ({"random": [*RANDOM, run(1, (0.1, 0.2, 0.3))]}, "random has two runs of one seed"),
        ({"feal": [made("feal", 2, (0.1, None, 0.3))]}, "Seed 2 of feal has rounds without metrics"),
    ],
)
def test_runs_that_do_not_compare_are_refused(other: dict[str, list[Run]], said: str) -> None:
    with pytest.raises(FealError, match=said):
        make_study({"random": RANDOM, **other})


def test_by_round_is_mean_and_deviation_over_seeds() -> None:
    table = tabulate_arms_by_round(make_study({"random": RANDOM}))
    assert [row["round"] for row in table] == [1, 2, 3]
    assert [row["labels_per_site"] for row in table] == list(LABELS)
    assert [row["pooled"] for row in table] == pytest.approx([0.3, 0.4, 0.5])
    assert [row["mean"] for row in table] == pytest.approx([0.15, 0.2, 0.25])
    assert table[0]["pooled_sd"] == pytest.approx(np.std([0.2, 0.4], ddof=1))
    assert {row["n"] for row in table} == {2}


def test_by_class_has_recall_and_labels_found() -> None:
    table = tabulate_classes(make_study({"random": RANDOM}))
    assert len(table) == 3 * 2
    assert [row["recall"] for row in table if row["class"] == "one"] == pytest.approx([0.3, 0.4, 0.5])
    assert all(math.isnan(row["recall"]) for row in table if row["class"] == "two")
    assert [row["found"] for row in table if row["class"] == "two"] == list(LABELS)
    assert {row["found_share"] for row in table} == {0.5}


def test_by_run_by_hand() -> None:
    first, second = tabulate_runs(make_study({"random": RANDOM}))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["outcome"] == pytest.approx(0.35)
    assert first["area"] == pytest.approx((0.25 * 10 + 0.35 * 20) / 30)
    assert first["last"] == pytest.approx(0.4)
    assert (first["labels_per_site"], first["seconds"]) == (40, 4.5)


def test_the_overview_says_how_many_labels_reach_the_reference() -> None:
    random, feal = tabulate_summaries(make_study({"random": RANDOM, "feal": FEAL[:2]}), reference="random")
    assert random["labels_to_random"] == 40
    # feal's mean curve is 0.3, 0.55, 0.65, and random ends at 0.5.
    assert feal["labels_to_random"] == pytest.approx(10 + 10 * 0.2 / 0.25)
    assert (feal["n"], feal["outcome"]) == (2, pytest.approx(0.6))
    [alone] = tabulate_summaries(make_study({"feal": FEAL}), reference="random")
    assert math.isnan(alone["labels_to_random"])


def test_differences_are_over_common_seeds() -> None:
    table = tabulate_differences(
        make_study(BY_ARM), [("feal", "random"), ("feal", "nobody"), ("nobody", "random")]
    )
    assert [row["quantity"] for row in table] == ["outcome", "area", "last"]
    row = table[0]
    assert (row["arm"], row["reference"], row["n"]) == ("feal", "random", 2)
    assert row["difference"] == pytest.approx(0.15)
    assert (row["low"], row["high"]) == pytest.approx((0.15, 0.15))
    assert row["sentence"].startswith("feal is 0.150 above random")
    assert tabulate_differences(make_study({"feal": FEAL[2:], "random": RANDOM}), [("feal", "random")]) == []


def test_tables_are_plain_csv(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": np.float64(0.12345678), "c": float("nan"), "d": None, "e": 3, "f": 5e-4}]
    write_csv(tmp_path / "new" / "table.csv", rows)
    assert (tmp_path / "new" / "table.csv").read_text() == "a,b,c,d,e,f\nx,0.123457,,,3,0.0005\n"
    write_csv(tmp_path / "all.csv", tabulate_classes(make_study({"random": RANDOM})))
    with (tmp_path / "all.csv").open() as file:
        assert [row["class"] for row in csv.DictReader(file)] == ["one", "two"] * 3
    write_csv(tmp_path / "empty.csv", [])
    assert (tmp_path / "empty.csv").read_text().strip() == ""


def test_differences_of_another_metric() -> None:
    arms = make_study(BY_ARM)
    pooled, mean = (
        subtract_arms(arms["feal"], arms["random"], "outcome", Measure(metric="balanced_accuracy", over=over))
        for over in ("pooled", "mean")
    )
    assert pooled is not None
    assert mean is not None
    assert mean.mean == pytest.approx(pooled.mean / 2)


def test_one_round_has_no_outcome_and_no_area_but_a_difference() -> None:
    arms = make_study({"feal": [run(0, (0.3,))], "random": [run(0, (0.2,))]})
    [row] = tabulate_differences(arms, [("feal", "random")])
    assert (row["quantity"], row["difference"]) == ("last", pytest.approx(0.1))
    assert math.isnan(tabulate_runs(arms)[0]["outcome"])
    assert math.isnan(tabulate_runs(arms)[0]["area"])


def test_points_are_tidy() -> None:
    table = tabulate_points(make_study({"feal": FEAL[1:2], "random": RANDOM[:1]}))
    assert [(row["arm"], row["seed"], row["round"], row["labels"]) for row in table[2:4]] == [
        ("feal", 0, 3, 80),
        ("random", 0, 1, 20),
    ]
    assert len({tuple(row) for row in table}) == 1
    assert table[0]["balanced_accuracy_pooled"] == 0.2
    assert math.isnan(table[0]["recall_two"])
    assert table[1]["found_two"] == 20
