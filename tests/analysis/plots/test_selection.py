import shutil
from pathlib import Path

import numpy as np
import pytest

from feal.analysis.plots import PLOTS
from feal.analysis.plots.base import list_panels
from feal.analysis.runs import read_runs
from tests.analysis.plots.specs import axis_titles, drawn
from tests.records import record, run
from tests.runs import labels

YIELD = PLOTS.get("yield")


def chosen(folder: Path) -> np.ndarray:
    """Labels by class that were asked for in the second round, counted in the sites' own files."""
    counts = np.zeros(5)
    for site in (folder / "sites").iterdir():
        for _, asked, _, _, _, label, *_ in labels(site / "site.sqlite"):
            counts[label] += asked == 2
    return counts


def test_yield_is_counted_after_the_first_round_and_compared_with_random(sweep: Path) -> None:
    runs = read_runs([sweep])
    rows = YIELD.data(runs)
    names = runs[0].classes
    random = [chosen(sweep / f"random-{seed}") for seed in (0, 1)]
    entropy = chosen(sweep / "entropy-0")
    assert {row["round"] for row in rows} == {2}
    for row in rows:
        place = names.index(row["class"])
        if row["arm"] == "random":
            assert (row["value"], row["n"]) == (np.mean([counts[place] for counts in random]), 2)
            assert row["ratio"] == (1.0 if row["value"] else None)
        else:
            # Compared with the same seed alone.
            assert (row["value"], row["random"]) == (entropy[place], random[0][place])
            assert row["ratio"] == (pytest.approx(entropy[place] / random[0][place]) if random[0][place] else None)
            assert row["share"] == pytest.approx(entropy[place] / entropy.sum())


def test_the_rarest_class_is_on_top_and_symbols_are_ratios(sweep: Path) -> None:
    rows = YIELD.data(read_runs([sweep]))
    counts = [row["value"] for row in rows if row["arm"] == "random"]
    assert counts == sorted(counts)
    chart = YIELD.draw(rows)
    # Random itself is the line at 1.
    own = [row for row in rows if row["arm"] == "entropy local"]
    assert [(row["arm"], row["class"]) for row in drawn(chart)] == [("entropy local", row["class"]) for row in own]
    assert [row["x"] for row in drawn(chart)] == [
        None if row["ratio"] is None else pytest.approx(row["ratio"], rel=1e-5) for row in own
    ]
    assert axis_titles(chart, "x") == ["Labels found (random = 1)"]
    y = list_panels(chart.to_spec())[0]["layer"][-1]["encoding"]["y"]
    assert y["sort"] == [row["line"] for row in drawn(chart)]


def test_without_random_shares_are_shown(sweep: Path) -> None:
    rows = YIELD.data(read_runs([sweep / "entropy-0"]))
    assert {row["ratio"] for row in rows} == {None}
    chart = YIELD.draw(rows)
    assert [row["x"] for row in drawn(chart)] == pytest.approx([row["share"] for row in rows], rel=1e-5)
    assert axis_titles(chart, "x") == ["Share of the labels found"]


def test_random_alone_has_nothing_to_be_relative_to(sweep: Path) -> None:
    chart = YIELD.draw(rows := YIELD.data(read_runs([sweep / "random-0"])))
    assert [row["x"] for row in drawn(chart)] == pytest.approx([row["share"] for row in rows], rel=1e-5)
    assert axis_titles(chart, "x") == ["Share of the labels found"]


def test_without_the_sites_folders_or_a_second_round_there_is_nothing(sweep: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sweep / "entropy-0", tmp_path / "copy")
    shutil.rmtree(copy / "sites")
    assert YIELD.data(read_runs([copy])) == []
    assert YIELD.data([run("random", [record(1)])]) == []
