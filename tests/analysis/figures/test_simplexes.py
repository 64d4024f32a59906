import json
from pathlib import Path

import numpy as np
import pytest

from feal.analysis.figures import FIGURES, Figure
from feal.analysis.figures.triangle_sheet import sheet_of
from feal.analysis.simplex import HEIGHT
from tests.analysis.fabricated import fabricated, keep

ROUNDS = FIGURES.get("simplex-rounds")
STRATEGIES = FIGURES.get("simplex-strategies")
EVIDENCE = 9 * np.eye(3, dtype=np.float32)


def _rows(columns: int) -> list[dict[str, object]]:
    return [
        {
            "column": f"arm {column}",
            "predicted": letter,
            "samples": column,
            **{f"class_{corner}": corner for corner in "abc"},
            **{f"alpha_{corner}": 1.0 + column * (corner == letter) for corner in "abc"},
        }
        for column in range(columns)
        for letter in "abc"
    ]


def test_rounds_show_the_pool_of_one_arm_over_its_seeds_and_sites(tmp_path: Path) -> None:
    runs = [fabricated(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    runs.append(fabricated(tmp_path / "other", strategy="random"))
    for run in runs:
        for site in run.sites:
            keep(run, site, "round-001", rows=[1, 2], logits_global=EVIDENCE[:2] * (run.settings.seed + 1))
            keep(run, site, "round-002", rows=[1], logits_global=EVIDENCE[2:])
    rows = ROUNDS.data(runs)
    assert {row["arm"] for row in rows} == {"feal"}
    assert [row["column"] for row in rows] == ["round 1"] * 3 + ["round 2"] * 3
    assert [row["samples"] for row in rows] == [4, 4, 0, 0, 0, 4]
    assert rows[0]["alpha_a"] == pytest.approx(1 + 13.5)
    assert rows[5]["alpha_c"] == pytest.approx(10)


def test_strategies_show_what_each_chose_and_by_which_loss(tmp_path: Path) -> None:
    runs = [fabricated(tmp_path / name, strategy=name) for name in ("feal", "random", "full")]
    for run, left in zip(runs[:2], (1, 2), strict=True):
        keep(run, "alder", "round-001", rows=[1, 2, 3], logits_global=EVIDENCE)
        keep(run, "alder", "round-002", rows=[left, 3], logits_global=EVIDENCE[1:])
    rows = STRATEGIES.data(runs)
    assert list(dict.fromkeys(row["column"] for row in rows)) == ["feal", "random (plain loss)"]
    assert [row["samples"] for row in rows] == [0, 1, 0, 1, 0, 0]
    assert {row["round"] for row in rows} == {2}


@pytest.mark.parametrize("figure", [ROUNDS, STRATEGIES])
def test_without_diagnostics_or_three_classes_there_is_nothing_to_see(
    tmp_path: Path, figure: type[Figure]
) -> None:
    two = fabricated(tmp_path / "two", classes="ab")
    keep(two, "alder", "round-001", rows=[1, 2], logits_global=np.ones((2, 2), np.float32))
    keep(two, "alder", "round-002", rows=[2], logits_global=np.ones((1, 2), np.float32))
    segmentation = fabricated(tmp_path / "masks", task="segmentation")
    keep(segmentation, "alder", "round-001", rows=[1], aleatoric_global=[0.5])
    for run in (fabricated(tmp_path / "none"), two, segmentation):
        rows = figure.data([run])
        assert rows == []
        assert len(figure.web(rows).data) == 0
        assert figure.printed(rows).axes == []


def test_triangles_keep_apart_and_go_on_below() -> None:
    sheet = sheet_of(_rows(7))
    places = [(panel.x, panel.y) for panel in sheet.panels]
    assert len(set(places)) == len(places) == 21
    assert len({x for x, _ in places}) == 4
    assert len({x for x, _ in [(panel.x, panel.y) for panel in sheet_of(_rows(5)).panels]}) == 5
    for one, other in zip(sorted(set(places)), sorted(set(places))[1:], strict=False):
        assert other[0] - one[0] >= 1.1 or other[1] - one[1] > HEIGHT
    assert all(0 <= panel.x <= sheet.width - 1 and panel.y >= -sheet.height for panel in sheet.panels)


def test_colours_reach_as_far_as_the_brightest_triangle() -> None:
    flat, sharp = sheet_of(_rows(1)), sheet_of([{**row, "alpha_a": 1e6} for row in _rows(1)])
    assert flat.panels[0].picture() == pytest.approx(0)
    assert flat.ticks == {-1: "≤ 0.1", 0: "1", 1: "10"}
    assert sharp.ticks == {-1: "≤ 0.1", 0: "1", 1: "10", 2: "100", 3: "≥ 1000"}
    assert np.isfinite(sharp.panels[0].picture()).all()
    assert sharp.panels[0].picture()[0, 0] == 3


def test_drawings_hold_every_triangle_and_stay_small() -> None:
    rows = _rows(11)
    web = ROUNDS.web(rows)
    assert sum(trace.type == "heatmap" for trace in web.data) == 33
    assert len(web.to_json()) < 600_000
    shown = json.dumps(web.layout.to_plotly_json(), default=str)
    assert all(f"arm {column}" in shown for column in range(11))
    printed = ROUNDS.printed(rows)
    assert len(printed.axes[0].images) == 33
    assert {"arm 0", "arm 10", "n = 10", "none", "A", "predicted\nC"} <= {
        t.get_text() for t in printed.axes[0].texts
    }


def test_a_class_that_is_never_predicted_is_an_empty_triangle() -> None:
    rows = [{**row, "samples": 0, **dict.fromkeys(("alpha_a", "alpha_b", "alpha_c"))} for row in _rows(1)]
    rows[0] = _rows(1)[0]
    assert sum(trace.type == "heatmap" for trace in ROUNDS.web(rows).data) == 1
    assert len(ROUNDS.printed(rows).axes[0].images) == 1


def test_a_part_of_the_rows_is_drawn_all_the_same() -> None:
    rows = [row for row in _rows(4) if row["predicted"] == "b"]
    assert {panel.row["predicted"] for panel in sheet_of(rows).panels} == {"b"}
    assert sum(trace.type == "heatmap" for trace in ROUNDS.web(rows).data) == 4
