import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.study_tables import (
    group_curves,
    tabulate_arms_by_round,
    tabulate_classes,
    tabulate_differences,
    tabulate_points,
    tabulate_runs,
    tabulate_summaries,
)

from feal.analysis.arms import Curve, Point
from feal.analysis.compare import subtract_curves
from feal.analysis.grid import write_csv
from feal.errors import FealError

LABELS = (10, 20, 40)


def curve(arm: str, seed: int, values: tuple[float, ...], *, task: str = "classification") -> Curve:
    """Two sites, two classes; all of the second half of the labels are of the second class."""
    return Curve(
        arm=arm,
        seed=seed,
        task=task,
        classes=("one", "two"),
        finished=True,
        points=tuple(
            Point(
                round=number,
                sites=2,
                labels=2 * labels,
                pooled={"balanced_accuracy": value, "dice": value},
                mean={"balanced_accuracy": value / 2, "dice": value},
                recall=(value, None),
                found=(labels, labels),
                zero_evidence=0.0,
                seconds=1.5,
            )
            for number, (labels, value) in enumerate(zip(LABELS, values, strict=False), start=1)
        ),
    )


RANDOM = [curve("random", 0, (0.2, 0.3, 0.4)), curve("random", 1, (0.4, 0.5, 0.6))]
FEAL = [curve("feal", 1, (0.4, 0.6, 0.8)), curve("feal", 0, (0.2, 0.5, 0.5)), curve("feal", 7, (0.0, 0.0, 0.0))]


def test_arms_keep_their_order_and_seeds_are_sorted() -> None:
    arms = group_curves([*FEAL, *RANDOM])
    assert list(arms) == ["feal", "random"]
    assert [member.seed for member in arms["feal"]] == [0, 1, 7]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (curve("feal", 2, (0.1, 0.2)), "differ in"),
        (curve("feal", 2, (0.1, 0.2, 0.3), task="segmentation"), "differ in"),
        (curve("random", 1, (0.1, 0.2, 0.3)), "random has two runs of one seed"),
        (curve("feal", 2, (0.1, math.nan, 0.3)), "Seed 2 of feal has rounds without metrics"),
    ],
)
def test_runs_that_do_not_compare_are_refused(other: Curve, said: str) -> None:
    with pytest.raises(FealError, match=said):
        group_curves([*RANDOM, other])


def test_by_round_is_mean_and_deviation_over_seeds() -> None:
    table = tabulate_arms_by_round(group_curves(RANDOM))
    assert [row["round"] for row in table] == [1, 2, 3]
    assert [row["labels_per_site"] for row in table] == list(LABELS)
    assert [row["pooled"] for row in table] == pytest.approx([0.3, 0.4, 0.5])
    assert [row["mean"] for row in table] == pytest.approx([0.15, 0.2, 0.25])
    assert table[0]["pooled_sd"] == pytest.approx(np.std([0.2, 0.4], ddof=1))
    assert {row["n"] for row in table} == {2}


def test_by_class_has_recall_and_labels_found() -> None:
    table = tabulate_classes(group_curves(RANDOM))
    assert len(table) == 3 * 2
    assert [row["recall"] for row in table if row["class"] == "one"] == pytest.approx([0.3, 0.4, 0.5])
    assert all(math.isnan(row["recall"]) for row in table if row["class"] == "two")
    assert [row["found"] for row in table if row["class"] == "two"] == list(LABELS)
    assert {row["found_share"] for row in table} == {0.5}


def test_by_run_by_hand() -> None:
    first, second = tabulate_runs(group_curves(RANDOM))
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["outcome"] == pytest.approx(0.35)
    assert first["area"] == pytest.approx((0.25 * 10 + 0.35 * 20) / 30)
    assert first["last"] == pytest.approx(0.4)
    assert (first["labels_per_site"], first["seconds"]) == (40, 4.5)


def test_the_overview_says_how_many_labels_reach_the_reference() -> None:
    random, feal = tabulate_summaries(group_curves([*RANDOM, *FEAL[:2]]), reference="random")
    assert random["labels_to_random"] == 40
    # feal's mean curve is 0.3, 0.55, 0.65, and random ends at 0.5.
    assert feal["labels_to_random"] == pytest.approx(10 + 10 * 0.2 / 0.25)
    assert (feal["n"], feal["outcome"]) == (2, pytest.approx(0.6))
    [alone] = tabulate_summaries(group_curves(FEAL), reference="random")
    assert math.isnan(alone["labels_to_random"])


def test_differences_are_over_common_seeds() -> None:
    table = tabulate_differences(
        group_curves([*RANDOM, *FEAL]), [("feal", "random"), ("feal", "nobody"), ("nobody", "random")]
    )
    assert [row["quantity"] for row in table] == ["outcome", "area", "last"]
    row = table[0]
    assert (row["arm"], row["reference"], row["n"]) == ("feal", "random", 2)
    assert row["difference"] == pytest.approx(0.15)
    assert (row["low"], row["high"]) == pytest.approx((0.15, 0.15))
    assert row["sentence"].startswith("feal is 0.150 above random")
    assert tabulate_differences(group_curves([FEAL[2], *RANDOM]), [("feal", "random")]) == []


def test_tables_are_plain_csv(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": np.float64(0.12345678), "c": float("nan"), "d": None, "e": 3, "f": 5e-4}]
    write_csv(tmp_path / "new" / "table.csv", rows)
    assert (tmp_path / "new" / "table.csv").read_text() == "a,b,c,d,e,f\nx,0.123457,,,3,0.0005\n"
    write_csv(tmp_path / "all.csv", tabulate_classes(group_curves(RANDOM)))
    with (tmp_path / "all.csv").open() as file:
        assert [row["class"] for row in csv.DictReader(file)] == ["one", "two"] * 3
    write_csv(tmp_path / "empty.csv", [])
    assert (tmp_path / "empty.csv").read_text().strip() == ""


def test_differences_of_another_metric() -> None:
    pooled, mean = (
        subtract_curves(FEAL[:2], RANDOM, "outcome", metric="balanced_accuracy", over=over)
        for over in ("pooled", "mean")
    )
    assert pooled is not None
    assert mean is not None
    assert mean.mean == pytest.approx(pooled.mean / 2)


def test_one_round_has_no_outcome_and_no_area_but_a_difference() -> None:
    arms = group_curves([curve("feal", 0, (0.3,)), curve("random", 0, (0.2,))])
    [row] = tabulate_differences(arms, [("feal", "random")])
    assert (row["quantity"], row["difference"]) == ("last", pytest.approx(0.1))
    assert math.isnan(tabulate_runs(arms)[0]["outcome"])
    assert math.isnan(tabulate_runs(arms)[0]["area"])


def test_points_are_tidy() -> None:
    table = tabulate_points([FEAL[1], RANDOM[0]])
    assert [(row["arm"], row["seed"], row["round"], row["labels"]) for row in table[2:4]] == [
        ("feal", 0, 3, 80),
        ("random", 0, 1, 20),
    ]
    assert len({tuple(row) for row in table}) == 1
    assert table[0]["balanced_accuracy_pooled"] == 0.2
    assert (table[0]["recall_two"], table[1]["found_two"]) == (None, 20)
    uncounted = replace(RANDOM[0], points=tuple(replace(point, found=()) for point in RANDOM[0].points))
    assert not any(name.startswith("found_") for name in tabulate_points([uncounted])[0])
