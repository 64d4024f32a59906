import json
import statistics
from pathlib import Path

import pytest

from feal.analysis.plots import PLOTS, save_plot
from feal.analysis.runs import open_run, read_runs
from feal.experiment import start
from tests.analysis.plots.specs import axis_titles, drawn, menus, titles
from tests.records import record, run
from tests.runs import tiny

CURVES = PLOTS.get("curves")
ARMS = [
    run("random", [record(1, accuracy=0.2), record(2, accuracy=0.4)]),
    run("random", [record(1, accuracy=0.3), record(2, accuracy=0.6)], seed=1),
    run("random", [record(1, accuracy=0.4)], seed=2, stage="train"),
    run("full", [record(1, accuracy=0.9, labels={"alder": 40, "birch": 40})]),
    run("entropy", [record(1, accuracy=0.2), record(2, accuracy=0.5)], **{"strategy.query_model": "global"}),
    run("entropy", [record(1, accuracy=0.2), record(2, accuracy=0.7)], **{"strategy.query_model": "ensemble"}),
]


def pick(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_rows_are_means_with_students_interval_over_the_seeds_that_are_there() -> None:
    rows = CURVES.data(ARMS)
    first, second = pick(rows, arm="random", metric="balanced_accuracy", over="pooled")
    assert (first["round"], first["labels"], first["n"]) == (1, 5, 3)
    assert first["value"] == pytest.approx(0.3)
    # t of 2 degrees of freedom at 97.5 %, from a printed table.
    half = 4.303 * statistics.stdev([0.2, 0.3, 0.4]) / 3**0.5
    assert (first["low"], first["high"]) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-4)
    assert (second["n"], second["labels"], second["sd"]) == (2, 10, pytest.approx(statistics.stdev([0.4, 0.6])))
    [alone] = pick(rows, arm="full", metric="balanced_accuracy", over="pooled")
    assert (alone["value"], alone["low"], alone["high"], alone["n"]) == (0.9, None, None, 1)
    assert len({tuple(row) for row in rows}) == 1


def test_every_metric_site_and_both_ways_over_sites_are_there() -> None:
    rows = CURVES.data(ARMS)
    assert [key[1] for key in dict.fromkeys((row["metric"], row["over"]) for row in rows)] == 2 * [
        "pooled", "mean", "alder", "birch",
    ]  # fmt: skip
    [row] = pick(rows, arm="entropy global", metric="balanced_accuracy", over="birch", round=2)
    assert (row["value"], row["labels"], row["series"]) == (0.8, 12, "entropy")


def test_panels_are_query_models_and_others_are_dashed_in_each() -> None:
    chart = CURVES.draw(CURVES.data(ARMS))
    assert [subtitle for _, subtitle in titles(chart)] == ["Global query model", "Ensemble of both"]
    assert axis_titles(chart, "x") == ["Labels per site"] * 2
    shown = {"metric": "balanced_accuracy", "over": "pooled"}
    entropy = drawn(chart, series="entropy", query_model="ensemble", **shown)
    assert [(row["x"], row["value"], row["dash"]) for row in entropy] == [(5, 0.2, "solid"), (10, 0.7, "solid")]
    random = drawn(chart, series="random", **shown)
    assert [(row["value"], row["dash"], row["query_model"]) for row in random] == [
        (pytest.approx(0.3), "dashed", None),
        (pytest.approx(0.5), "dashed", None),
    ]
    # Full supervision is a level over all labels.
    [full] = drawn(chart, series="full", **shown)
    assert (full["level"], full["value"], full["dash"]) == (True, 0.9, "dotted")
    assert chart.legend == ["full", "random", "entropy"]
    # A panel has its own query model and arms without one.
    filters = [json.dumps(panel.to_dict()) for panel in chart.tiers[0]]
    for model, text in zip(("global", "ensemble"), filters, strict=True):
        assert f'datum.query_model === null || datum.query_model === \\"{model}\\"' in text


def test_panels_of_a_row_share_their_y_scale() -> None:
    spec = CURVES.draw(CURVES.data(ARMS)).to_spec()
    assert spec["vconcat"][0]["resolve"]["scale"]["y"] == "shared"


def test_without_query_models_there_is_one_panel_of_solid_lines() -> None:
    chart = CURVES.draw(CURVES.data(ARMS[:3]))
    assert {row["dash"] for row in drawn(chart)} == {"solid"}
    assert len(titles(chart)) == 1


def test_full_supervision_alone_is_a_point() -> None:
    chart = CURVES.draw(CURVES.data(ARMS[3:4]))
    assert {row["level"] for row in drawn(chart)} == {False}


def test_menus_offer_every_metric_and_site() -> None:
    chart = CURVES.draw(CURVES.data(ARMS))
    assert menus(chart) == {
        "metric": ["balanced accuracy", "expected calibration error"],
        "over": ["all sites pooled", "mean of sites", "alder", "birch"],
    }
    heading, _ = titles(chart)[0]
    assert "Expected calibration error" in heading["expr"]
    birch = drawn(chart, series="entropy", query_model="global", metric="balanced_accuracy", over="birch")
    assert [(row["x"], row["value"]) for row in birch] == [(6, 0.5), (12, 0.8)]


def test_tooltips_have_interval_and_seeds() -> None:
    chart = CURVES.draw(CURVES.data(ARMS))
    first = drawn(chart, series="random", metric="balanced_accuracy", over="pooled")[0]
    assert (first["interval"], first["seeds"]) == ("0.05159 to 0.5484", "3 seeds, 1 not finished")
    assert drawn(chart, series="entropy")[0]["seeds"] == "one seed"
    assert chart.note.startswith("Mean over 1 to 3 seeds; band: 95 % interval")


def test_unfinished_runs_are_noted() -> None:
    rows = CURVES.data(ARMS)
    assert {row["arm"]: row["unfinished"] for row in rows if row["unfinished"]} == {"random": 1}
    assert CURVES.draw(rows).note.endswith("Some runs are not finished.")
    finished = CURVES.data([run for run in ARMS if run.status == "finished"])
    assert "not finished" not in CURVES.draw(finished).note


def test_a_column_of_a_paper_is_as_wide_as_it_says() -> None:
    """With the longest note, which is wrapped."""
    content = save_plot(CURVES.draw(CURVES.data([*ARMS[:3], run("feal", [record(1)])])), "svg").decode()
    width = float(content.partition('width="')[2].partition('"')[0])
    assert 300 < width < 380
    assert "Some runs are" in content


def test_many_series_have_bars_beside_each_other() -> None:
    strategies = ("random", "feal", "logo", "kafal", "strata")
    runs = [run(name, [record(1), record(2)], seed=seed) for name in strategies for seed in (0, 1)]
    chart = CURVES.draw(CURVES.data(runs))
    places = [row["x"] for row in drawn(chart, metric="balanced_accuracy", over="pooled", round=1)]
    assert len(set(places)) == len(strategies)
    assert places == pytest.approx([5] * 5, abs=1)
    assert "bar: 95 %" in chart.note


def test_the_note_explains_that_one_seed_has_no_interval() -> None:
    assert CURVES.draw(CURVES.data(ARMS[:1])).note == "One seed, so no interval."


def test_without_test_data_or_a_finished_round_there_is_nothing_to_show() -> None:
    empty = {metric: {"pooled": None, "mean": None, "sites": {}} for metric in ("balanced_accuracy", "accuracy")}
    assert CURVES.data([run("random", [record(1, metrics=empty)])]) == []
    assert CURVES.data([run("random", stage="train")]) == []


def test_a_seed_without_a_value_is_left_out_of_the_mean() -> None:
    rows = CURVES.data([run("random", [record(1, accuracy=None)]), run("random", [record(1)], seed=1)])
    [row] = pick(rows, metric="balanced_accuracy", over="pooled")
    assert (row["value"], row["n"]) == (0.5, 1)


def test_curves_carry_the_values_of_the_summary(tmp_path: Path) -> None:
    start(tiny(strategy="random", rounds=1, communication_rounds=1), out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    chart = CURVES.draw(CURVES.data([open_run(tmp_path / "run")]))
    for metric, values in summary["rounds"][0]["metrics"].items():
        [row] = drawn(chart, series="random", metric=metric, over="pooled")
        assert row["value"] == pytest.approx(values["pooled"], rel=1e-5)
    assert len(CURVES.data(read_runs([tmp_path]))) == 3 * 4
