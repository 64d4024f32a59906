"""Uncertainty, zero evidence and relaxation: plots of the rounds' diagnostics."""

import pytest

from feal.analysis.plots import PLOTS
from feal.analysis.plots.base import list_panels
from tests.analysis.plots.specs import drawn, menus, titles
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
