import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from feal.analysis.plots import PLOTS, Chart, save_plot
from feal.analysis.runs import read_runs
from feal.data import locate, open_labels, open_prepared
from tests.analysis.plots.specs import axis_titles, drawn, menus
from tests.records import record, run

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


RUNS = [
    run("random", [calibrated(1, [0, 2], [0.0, 1.5], [0, 1]), calibrated(2, [4, 4], [1.0, 3.0], [1, 2])]),
    run("random", [calibrated(1, [0, 2], [0.0, 1.7], [0, 2], error=0.75)], seed=1),
]


def test_bins_are_added_over_seeds() -> None:
    rows = RELIABILITY.data(RUNS)
    assert [(row["round"], row["bin"]) for row in rows] == [(2, 1), (2, 2), (1, 2)]
    last = rows[-1]
    assert (last["count"], last["n"], last["calibration_error"]) == (4, 2, 0.5)
    assert (last["confidence"], last["value"]) == (pytest.approx(3.2 / 4), pytest.approx(3 / 4))


def test_the_chart_carries_the_bins_and_the_errors_of_each_round() -> None:
    chart = RELIABILITY.draw(RELIABILITY.data(RUNS))
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
    chart = RELIABILITY.draw(RELIABILITY.data([*runs, run("random", RUNS[0].rounds[:1])]))
    assert texts(chart) == [
        text for error in ("0.100", "0.200", "0.300") for text in (f"entropy: ECE {error}", "random: ECE 0.250")
    ]
    assert axis_titles(chart, "x") == ["Probability of the predicted class"] * 3


def test_unfinished_runs_are_noted() -> None:
    rows = RELIABILITY.data([RUNS[0], run("random", [RUNS[1].rounds[0]], seed=1, stage="train")])
    assert RELIABILITY.draw(rows).note.endswith("Some runs are not finished.")


def test_full_supervision_is_in_every_round() -> None:
    chart = RELIABILITY.draw(RELIABILITY.data([RUNS[0], run("full", [calibrated(1, [0, 2], [0.0, 1.8], [0, 2])])]))
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
