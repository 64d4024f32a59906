"""Uncertainty, zero evidence, relaxation and reliability: plots of the rounds' diagnostics."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from feal.analysis.plots import PLOTS, Chart, save_plot
from feal.analysis.plots.base import list_panels
from feal.analysis.runs import read_runs
from feal.data import locate, open_labels, open_prepared
from tests.analysis.plots.specs import axis_titles, drawn, menus, titles
from tests.records import CLASSES, SITES, record, run

_KINDS = ("aleatoric", "epistemic")
UNCERTAINTY, ZERO, RELAXATION = (PLOTS.get(name) for name in ("uncertainty", "zero-evidence", "relaxation"))


def evidence(level):
    return {
        "aleatoric": level,
        "epistemic": -level,
        "zero_evidence": 0.25 * level,
        "class_evidence": [0.5, 1.0, 0.0],
    }


def diagnosed(number, level, **selection):
    asked = {"local_model": "own", "asked": 10, "pending": 0, "rejected": 0, "filled": 0}
    return record(
        number,
        diagnostics={
            **evidence(level),
            "sites": {"alder": evidence(level / 2), "birch": evidence(2 * level)},
            "selection": {site: asked | selection.get(site, {}) for site in SITES},
        },
    )


def value(rows, **wanted):
    [row] = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row["value"]


RUNS = [run("feal", [diagnosed(1, 1.0), diagnosed(2, 0.8)], seed=seed) for seed in (0, 1)]


def test_uncertainty_is_that_of_the_records() -> None:
    rows = UNCERTAINTY.data(RUNS)
    assert value(rows, metric="aleatoric", over="pooled", round=2) == 0.8
    assert value(rows, metric="epistemic", over="birch", round=1) == -2.0
    chart = UNCERTAINTY.draw(rows)
    shown = {metric: [row["value"] for row in drawn(chart, metric=metric, over="pooled")] for metric in _KINDS}
    assert shown == {"aleatoric": [1.0, 0.8], "epistemic": [-1.0, -0.8]}
    assert titles(chart) == ["Aleatoric uncertainty (nats)", "Epistemic uncertainty (nats)"]
    assert menus(chart) == {"over": ["all sites pooled", "alder", "birch"]}


def test_zero_evidence_is_at_all_and_by_class() -> None:
    rows = ZERO.data(RUNS)
    assert list(dict.fromkeys(row["metric"] for row in rows)) == [
        "samples without evidence", *(f"samples without evidence for {name}" for name in CLASSES),
    ]  # fmt: skip
    assert value(rows, metric="samples without evidence", over="alder", round=1) == 0.125
    assert [value(rows, metric=f"samples without evidence for {c}", over="pooled", round=2) for c in CLASSES] == [
        0.5, 0.0, 1.0,
    ]  # fmt: skip
    chart = ZERO.draw(rows)
    assert {name: len(labels) for name, labels in menus(chart).items()} == {"metric": 4, "over": 3}
    shown = drawn(chart, metric="samples without evidence", over="pooled")
    assert [row["value"] for row in shown] == [0.25, 0.2]
    # Zero is on the axis, which has a height even if nothing else is.
    panel = list_panels(chart.to_spec())[0]
    assert panel["layer"][0]["encoding"]["y"] == {"datum": 0.1}
    assert panel["layer"][-1]["encoding"]["y"]["scale"] == {"zero": True}


def test_an_interval_of_shares_ends_at_0_and_1() -> None:
    rows = ZERO.data([run("feal", [diagnosed(1, level)], seed=seed) for seed, level in enumerate((0.0, 2.0))])
    [row] = [row for row in rows if (row["metric"], row["over"]) == ("samples without evidence", "pooled")]
    assert (row["value"], row["low"], row["high"]) == (0.25, 0.0, 1.0)


def test_relaxation_counts_what_was_looked_at_and_what_was_filled_in() -> None:
    short = {"rejected": 30, "filled": 4}
    first = diagnosed(1, 1.0, alder=short, birch={"rejected": 10})
    last = diagnosed(2, 1.0, alder={"asked": 0}, birch={"asked": 0})
    rows = RELAXATION.data([run("feal", [first, last]), run("random", [first, last])])
    assert {(row["arm"], row["round"]) for row in rows} == {("feal", 1)}
    # alder took 6 of 36 candidates by the walk and 4 by score alone.
    assert value(rows, metric="passed over", over="alder") == pytest.approx(30 / 36)
    assert value(rows, metric="filled in", over="alder") == pytest.approx(0.4)
    assert value(rows, metric="passed over", over="birch") == pytest.approx(0.5)
    assert value(rows, metric="passed over", over="pooled") == pytest.approx(40 / 56)
    chart = RELAXATION.draw(rows)
    shown = {(row["series"], row["metric"]): row["value"] for row in drawn(chart)}
    assert shown["alder", "passed over"] == pytest.approx(30 / 36, rel=1e-5)
    assert shown["all sites pooled", "filled in"] == pytest.approx(4 / 20)
    assert chart.note.startswith("feal. ")
    assert chart.legend == ["all sites pooled", "alder", "birch"]
    assert titles(chart) == ["Passed over (share of candidates)", "Filled in (share of selected)"]


def test_relaxed_arms_are_chosen_by_a_menu() -> None:
    runs = [run("feal", [diagnosed(1, 1.0)], **{"strategy.n": n}) for n in (3, 5)]
    chart = RELAXATION.draw(RELAXATION.data(runs))
    assert menus(chart) == {"over": [f"feal evidential, strategy.n={n}" for n in (3, 5)]}


@pytest.mark.parametrize("name", ["uncertainty", "zero-evidence", "relaxation"])
def test_without_a_test_part_and_without_choice_there_is_nothing_to_show(name: str) -> None:
    assert PLOTS.get(name).data([run("random", [record(1)]), run("feal", stage="train")]) == []
    assert PLOTS.get(name).data([]) == []


RELIABILITY = PLOTS.get("reliability")


def calibrated(number, count, confidence, correct, *, error=0.25):
    bins = {"count": count, "confidence": confidence, "correct": correct}
    return record(
        number,
        diagnostics={"calibration": bins},
        metrics={"calibration_error": {"pooled": error, "mean": error, "sites": {}}},
    )


def texts(chart: Chart) -> list[str]:
    """The calibration errors that are written into the panels, from left to right and from top to bottom."""
    svg = save_plot(chart, "svg").decode()
    return [text for text in re.findall(r">([^<>]*)</text>", svg) if "ECE" in text]


CALIBRATED = [
    run("random", [calibrated(1, [0, 2], [0.0, 1.5], [0, 1]), calibrated(2, [4, 4], [1.0, 3.0], [1, 2])]),
    run("random", [calibrated(1, [0, 2], [0.0, 1.7], [0, 2], error=0.75)], seed=1),
]


def test_bins_are_added_over_seeds() -> None:
    rows = RELIABILITY.data(CALIBRATED)
    assert [(row["round"], row["bin"]) for row in rows] == [(2, 1), (2, 2), (1, 2)]
    last = rows[-1]
    assert (last["count"], last["n"], last["calibration_error"]) == (4, 2, 0.5)
    assert (last["confidence"], last["value"]) == (pytest.approx(3.2 / 4), pytest.approx(3 / 4))


def test_the_chart_carries_the_bins_and_the_errors_of_each_round() -> None:
    chart = RELIABILITY.draw(RELIABILITY.data(CALIBRATED))
    assert menus(chart) == {"over": ["after round 2", "after round 1"]}
    points = drawn(chart, over="after round 2")
    assert [(row["x"], row["value"]) for row in points] == [(0.25, 0.25), (0.75, 0.5)]
    errors = {row["over"]: row["calibration_error"] for row in drawn(chart)}
    assert errors == {"after round 2": 0.25, "after round 1": 0.5}
    assert texts(chart) == ["random: ECE 0.250"]
    assert axis_titles(chart, "x") == ["Probability of the predicted class"]


def test_errors_of_many_series_are_not_listed() -> None:
    bins = [calibrated(1, [4, 4], [1.0, 3.0], [1, 2])]
    names = ("random", "feal", "logo", "kafal", "strata", "badge", "entropy", "coreset", "tod")
    chart = RELIABILITY.draw(RELIABILITY.data([run(name, bins) for name in names]))
    assert texts(chart) == []


def test_each_query_model_has_a_panel_with_its_own_errors() -> None:
    runs = [
        run(
            "entropy",
            [calibrated(1, [4, 4], [1.0, 3.0], [1, 2], error=error)],
            **{"strategy.query_model": model},
        )
        for model, error in (("global", 0.1), ("local", 0.2), ("ensemble", 0.3))
    ]
    chart = RELIABILITY.draw(RELIABILITY.data([*runs, run("random", CALIBRATED[0].rounds[:1])]))
    assert texts(chart) == [
        text for error in ("0.100", "0.200", "0.300") for text in (f"entropy: ECE {error}", "random: ECE 0.250")
    ]
    assert axis_titles(chart, "x") == ["Probability of the predicted class"] * 3


def test_unfinished_runs_are_noted() -> None:
    rows = RELIABILITY.data([CALIBRATED[0], run("random", [CALIBRATED[1].rounds[0]], seed=1, stage="train")])
    assert RELIABILITY.draw(rows).note.endswith("Some runs are not finished.")


def test_full_supervision_is_in_every_round() -> None:
    chart = RELIABILITY.draw(
        RELIABILITY.data([CALIBRATED[0], run("full", [calibrated(1, [0, 2], [0.0, 1.8], [0, 2])])])
    )
    full = drawn(chart, series="full")
    assert [(row["over"], row["x"], row["value"]) for row in full] == [
        ("after round 2", 0.9, 1.0),
        ("after round 1", 0.9, 1.0),
    ]


def test_bins_are_those_of_the_kept_logits(sweep: Path) -> None:
    [found] = read_runs([sweep / "entropy-0"])
    data = open_prepared(locate(found.settings.dataset, data=None))
    sure, right = [], []
    for site in found.sites:
        kept = load_file(found.path / "sites" / site / "diagnostics" / "evaluation-002.safetensors")
        probability = torch.softmax(kept["logits"], dim=1).numpy()
        truth = open_labels(data.site(site)).read(kept["rows"].numpy()).numpy()
        sure += probability.max(axis=1).tolist()
        right += (probability.argmax(axis=1) == truth).tolist()
    rows = [row for row in RELIABILITY.data([found]) if row["round"] == 2]
    places = np.minimum((np.array(sure) * 15).astype(int), 14) + 1
    for row in rows:
        inside = places == row["bin"]
        assert row["count"] == inside.sum()
        assert row["confidence"] == pytest.approx(np.array(sure)[inside].mean(), abs=1e-6)
        assert row["value"] == pytest.approx(np.array(right)[inside].mean())
    total = sum(row["count"] for row in rows)
    error = sum(row["count"] * abs(row["confidence"] - row["value"]) for row in rows) / total
    assert rows[0]["calibration_error"] == pytest.approx(error)


def test_runs_without_bins_have_nothing_to_show(tmp_path: Path) -> None:
    assert RELIABILITY.data([run("random", [record(1)])]) == []
