from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from feal.analysis.figures import FIGURES
from feal.analysis.runs import read_runs
from feal.data import locate, open_prepared, open_truth
from tests.records import record, run

RELIABILITY = FIGURES.get("reliability")


def calibrated(number, count, confidence, correct, *, error=0.25):
    bins = {"count": count, "confidence": confidence, "correct": correct}
    return record(
        number,
        diagnostics={"calibration": bins},
        metrics={"calibration_error": {"pooled": error, "mean": error, "sites": {}}},
    )


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


def test_both_forms_carry_the_bins_and_the_error() -> None:
    rows = RELIABILITY.data(RUNS)
    web = RELIABILITY.web(rows)
    body = next(trace for trace in web.data if trace.fill is None)
    assert (body.x, body.y) == ((0.25, 0.75), (0.25, 0.5))
    assert web.layout.annotations[0].text.endswith("random 0.250</span>")
    [menu] = web.layout.updatemenus
    change = menu.buttons[1].args[1]["annotations[0].text"]
    assert (menu.buttons[1].label, change.endswith("random 0.500</span>")) == ("after round 1", True)
    [axes] = RELIABILITY.printed(rows).axes
    assert list(axes.lines[0].get_ydata()) == [0.25, 0.5]
    assert axes.texts[0].get_text() == "ECE\nrandom 0.250"


def test_titles_of_panels_side_by_side_fit_a_sheet_of_paper() -> None:
    bins = [calibrated(1, [4, 4], [1.0, 3.0], [1, 2])]
    web = RELIABILITY.web(
        RELIABILITY.data([run("entropy", bins, query_model=model) for model in ("global", "local", "ensemble")])
    )
    for axis in (web.layout.xaxis, web.layout.xaxis2, web.layout.xaxis3):
        assert axis.title.text.replace("<br>", " ") == "Probability of the predicted class"
        # A third of 660 pixels, in letters of 7.
        assert max(map(len, axis.title.text.split("<br>"))) <= 28


def test_unfinished_runs_are_told_in_the_note() -> None:
    rows = RELIABILITY.data([RUNS[0], run("random", [RUNS[1].rounds[0]], seed=1, stage="train")])
    assert RELIABILITY.web(rows).layout.legend.title.text.endswith("Some runs are not finished.")


def test_what_has_one_round_only_stands_in_each() -> None:
    web = RELIABILITY.web(RELIABILITY.data([RUNS[0], run("full", [calibrated(1, [0, 2], [0.0, 1.8], [0, 2])])]))
    full = next(trace for trace in web.data if trace.fill is None and trace.name == "full")
    assert (full.x, full.y) == ((0.9,), (1.0,))


def test_bins_are_those_of_the_kept_logits(sweep: Path) -> None:
    [found] = read_runs([sweep / "entropy-0"])
    data = open_prepared(
        locate(found.settings.dataset, data=None, synthetic=found.settings.synthetic.model_dump())
    )
    sure, right = [], []
    for site in found.sites:
        kept = load_file(found.path / "sites" / site / "diagnostics" / "evaluation-002.safetensors")
        probability = torch.softmax(kept["logits"], dim=1).numpy()
        truth = open_truth(data.site(site)).read(kept["rows"].numpy()).numpy()
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
