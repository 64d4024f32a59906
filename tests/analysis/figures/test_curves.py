import json
import statistics
from pathlib import Path

import pytest

from feal.analysis.figures import FIGURES
from feal.analysis.runs import read_run, read_runs
from feal.experiment import start
from tests.records import record, run
from tests.runs import tiny

CURVES = FIGURES.get("curves")
ARMS = [
    run("random", [record(1, accuracy=0.2), record(2, accuracy=0.4)]),
    run("random", [record(1, accuracy=0.3), record(2, accuracy=0.6)], seed=1),
    run("random", [record(1, accuracy=0.4)], seed=2, stage="train"),
    run("full", [record(1, accuracy=0.9, labels={"alder": 40, "birch": 40})]),
    run("entropy", [record(1, accuracy=0.2), record(2, accuracy=0.5)], query_model="global"),
    run("entropy", [record(1, accuracy=0.2), record(2, accuracy=0.7)], query_model="ensemble"),
]


def pick(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def body(figure, series, *, metric="balanced_accuracy", panel=None):
    [trace] = [
        trace
        for trace in figure.data
        if trace.name == series and trace.fill is None and trace.meta == {"metric": metric, "panel": panel}
    ]
    return trace


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
    web = CURVES.web(CURVES.data(ARMS))
    assert [note.text for note in web.layout.annotations] == ["Global query model", "Ensemble of both"]
    assert body(web, "entropy", panel="global").y == (0.2, 0.5)
    assert body(web, "entropy", panel="ensemble").y == (0.2, 0.7)
    for panel in ("global", "ensemble"):
        assert body(web, "random", panel=panel).y == pytest.approx((0.3, 0.5))
        assert body(web, "random", panel=panel).line.dash == "dash"
        # Level at what everything labelled reaches, over all that the others span.
        assert (body(web, "full", panel=panel).x, body(web, "full", panel=panel).y) == ((5, 10), (0.9, 0.9))
    listed = [trace.name for trace in web.data if trace.showlegend and trace.visible]
    assert sorted(listed) == ["entropy", "full", "random"]


def test_without_query_models_there_is_one_panel_of_whole_lines() -> None:
    rows = CURVES.data(ARMS[:3])
    assert body(CURVES.web(rows), "random").line.dash == "solid"
    assert not CURVES.web(rows).layout.annotations
    assert len(CURVES.printed(rows).axes) == 1


def test_menus_show_every_metric_and_site_in_any_combination() -> None:
    rows = CURVES.data(ARMS)
    web = CURVES.web(rows)
    metrics, sites = web.layout.updatemenus
    assert [button.label for button in metrics.buttons] == ["balanced accuracy", "expected calibration error"]
    assert [button.label for button in sites.buttons] == ["all sites pooled", "mean of sites", "alder", "birch"]
    seen = metrics.buttons[1].args[0]["visible"]
    assert [trace.meta["metric"] == "calibration_error" for trace in web.data] == seen
    assert metrics.buttons[1].args[1] == {"yaxis.title.text": "Expected calibration error"}
    for index, trace in enumerate(web.data):
        drawn = pick(rows, series=trace.name, metric=trace.meta["metric"], over="birch")
        if trace.fill is None and trace.name == "entropy":
            drawn = pick(drawn, query_model=trace.meta["panel"])
            assert sites.buttons[3].args[0]["y"][index] == [row["value"] for row in drawn]
            assert sites.buttons[3].args[0]["x"][index] == [6, 12]


def test_hover_says_values_interval_and_seeds() -> None:
    web = CURVES.web(CURVES.data(ARMS))
    trace = body(web, "random", panel="global")
    assert trace.hovertemplate.startswith(
        "<b>random</b><br>balanced accuracy %{y:.4f}<br>%{customdata[0]}<br>round "
    )
    assert list(trace.customdata[0]) == ["3 seeds, 95 % interval 0.05159 to 0.5484, 1 not finished", 1, 5]
    assert body(web, "entropy", panel="global").customdata[0][0] == "one seed"
    assert web.layout.legend.title.text.startswith("Mean over 1 to 3 seeds; band: 95 % interval")


def test_print_carries_the_rows_values() -> None:
    figure = CURVES.printed(CURVES.data(ARMS))
    ours, _ = figure.axes
    drawn = [line.get_ydata() for line in ours.lines]
    assert [value for values in drawn for value in values] == pytest.approx([0.9, 0.9, 0.3, 0.5, 0.2, 0.5])
    assert ours.get_ylabel() == "Balanced accuracy"
    assert ours.get_xlabel() == "Labels per site"
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["full", "random", "entropy"]


def test_unfinished_runs_are_said_to_be_so_in_both_forms() -> None:
    rows = CURVES.data(ARMS)
    assert {row["arm"]: row["unfinished"] for row in rows if row["unfinished"]} == {"random": 1}
    web = CURVES.web(rows)
    assert web.layout.legend.title.text.replace("<br>", " ").endswith("Some runs are not finished.")
    assert CURVES.printed(rows).legends[0].get_title().get_text().endswith("Some runs are not finished.")
    finished = CURVES.data([run for run in ARMS if run.status == "finished"])
    assert "not finished" not in CURVES.web(finished).layout.legend.title.text


def test_nothing_in_print_reaches_beyond_the_sheet() -> None:
    """The longest note, in a figure of one column."""
    figure = CURVES.printed(CURVES.data([*ARMS[:3], run("feal", [record(1)])]))
    figure.draw_without_rendering()
    whole = figure.bbox
    for box in (figure.legends[0].get_window_extent(), *(axes.get_tightbbox() for axes in figure.axes)):
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    # There is room left for the panel itself.
    assert figure.axes[0].get_position().height * figure.get_figheight() > 1.2


def test_many_series_have_bars_beside_each_other_in_print() -> None:
    strategies = ("random", "feal", "logo", "kafal", "strata")
    runs = [run(name, [record(1), record(2)], seed=seed) for name in strategies for seed in (0, 1)]
    figure = CURVES.printed(CURVES.data(runs))
    places = [line.get_xdata()[0] for line in figure.axes[0].lines]
    assert len(set(places)) == len(strategies)
    assert places == pytest.approx([5] * 5, abs=1)
    assert "bar: 95 %" in figure.legends[0].get_title().get_text()


def test_one_seed_is_said_to_have_no_interval() -> None:
    rows = CURVES.data(ARMS[:1])
    assert CURVES.web(rows).layout.legend.title.text == "One seed, so no interval."
    assert CURVES.printed(rows).legends[0].get_title().get_text() == "One seed, so no interval."


def test_without_a_test_part_or_a_finished_round_there_is_nothing_to_show() -> None:
    empty = {metric: {"pooled": None, "mean": None, "sites": {}} for metric in ("balanced_accuracy", "accuracy")}
    assert CURVES.data([run("random", [record(1, metrics=empty)])]) == []
    assert CURVES.data([run("random", stage="train")]) == []


def test_a_seed_without_a_figure_is_left_out_of_the_mean() -> None:
    rows = CURVES.data([run("random", [record(1, accuracy=None)]), run("random", [record(1)], seed=1)])
    [row] = pick(rows, metric="balanced_accuracy", over="pooled")
    assert (row["value"], row["n"]) == (0.5, 1)


def test_curves_carry_the_values_of_the_summary(tmp_path: Path) -> None:
    start(tiny(strategy="random", rounds=1, communication_rounds=1), out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    web = CURVES.web(CURVES.data([read_run(tmp_path / "run")]))
    for metric, figures in summary["rounds"][0]["metrics"].items():
        assert body(web, "random", metric=metric).y == (figures["pooled"],)
    assert len(CURVES.data(read_runs([tmp_path]))) == 3 * 4
