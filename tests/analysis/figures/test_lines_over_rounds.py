"""Uncertainty, zero evidence and relaxation: figures of the rounds' diagnostics."""

import pytest

from feal.analysis.figures import FIGURES
from tests.records import CLASSES, SITES, record, run

UNCERTAINTY, ZERO, RELAXATION = (FIGURES.get(name) for name in ("uncertainty", "zero-evidence", "relaxation"))


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
    web = UNCERTAINTY.web(rows)
    drawn = {trace.meta["metric"]: trace.y for trace in web.data if trace.fill is None}
    assert drawn == {"aleatoric": (1.0, 0.8), "epistemic": (-1.0, -0.8)}
    assert (web.layout.yaxis.title.text, web.layout.yaxis2.title.text) == (
        "Aleatoric uncertainty (nats)", "Epistemic uncertainty (nats)",
    )  # fmt: skip
    assert [trace.showlegend for trace in web.data if trace.fill is None] == [True, False]
    upper, lower = UNCERTAINTY.printed(rows).axes
    assert list(upper.lines[0].get_ydata()) == [1.0, 0.8]
    assert list(lower.lines[0].get_ydata()) == [-1.0, -0.8]


def test_zero_evidence_is_at_all_and_by_class() -> None:
    rows = ZERO.data(RUNS)
    assert list(dict.fromkeys(row["metric"] for row in rows)) == [
        "samples without evidence", *(f"samples without evidence for {name}" for name in CLASSES),
    ]  # fmt: skip
    assert value(rows, metric="samples without evidence", over="alder", round=1) == 0.125
    assert [value(rows, metric=f"samples without evidence for {c}", over="pooled", round=2) for c in CLASSES] == [
        0.5, 0.0, 1.0,
    ]  # fmt: skip
    web = ZERO.web(rows)
    assert [len(menu.buttons) for menu in web.layout.updatemenus] == [4, 3]
    assert web.layout.yaxis.minallowed == 0
    [axes] = ZERO.printed(rows).axes
    assert list(axes.lines[0].get_ydata()) == [0.25, 0.2]


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
    web = RELAXATION.web(rows)
    drawn = {(trace.name, trace.meta["metric"]): trace.y for trace in web.data if trace.fill is None}
    assert drawn["alder", "passed over"] == (pytest.approx(30 / 36),)
    assert drawn["all sites pooled", "filled in"] == (pytest.approx(4 / 20),)
    assert web.layout.legend.title.text.startswith("feal. ")
    upper, _ = RELAXATION.printed(rows).axes
    assert [line.get_ydata()[0] for line in upper.lines] == pytest.approx([40 / 56, 30 / 36, 0.5])


def test_relaxed_arms_are_chosen_by_a_menu() -> None:
    runs = [run("feal", [diagnosed(1, 1.0)], **{"selection.n": n}) for n in (3, 5)]
    [menu] = RELAXATION.web(RELAXATION.data(runs)).layout.updatemenus
    assert [button.label for button in menu.buttons] == [f"feal evidential, selection.n={n}" for n in (3, 5)]


@pytest.mark.parametrize("name", ["uncertainty", "zero-evidence", "relaxation"])
def test_without_a_test_part_and_without_choice_there_is_nothing_to_show(name: str) -> None:
    assert FIGURES.get(name).data([run("random", [record(1)]), run("feal", stage="train")]) == []
    assert FIGURES.get(name).data([]) == []
