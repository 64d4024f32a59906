from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import dirichlet, kstest

from feal.analysis.plots import PLOTS, Plot, save_plot
from feal.analysis.plots.simplex import (
    CORNERS,
    HEIGHT,
    STEPS,
    mean_concentrations,
    rasterize,
    render_density,
)
from tests.analysis.fabricated import fabricated, keep

ROUNDS = PLOTS.get("simplex-rounds")
STRATEGIES = PLOTS.get("simplex-strategies")
EVIDENCE = 9 * np.eye(3, dtype=np.float32)
LOGITS = torch.tensor([[4.0, 1.0, -1.0], [2.0, 0.0, 1.0], [0.0, 3.0, 1.0]])


def test_means_by_hand(tmp_path: Path) -> None:
    rows = mean_concentrations({"round 1": [(fabricated(tmp_path), LOGITS)]})
    assert [row["predicted"] for row in rows] == ["a", "b", "c"]
    found = [[row[f"alpha_{letter}"] for letter in "abc"] for row in rows]
    assert found == [[4.0, 1.5, 1.5], [1.0, 4.0, 2.0], [None] * 3]
    assert [row["samples"] for row in rows] == [2, 1, 0]
    assert {row["column"] for row in rows} == {"round 1"}


def test_the_mean_concentration_is_that_of_the_geometric_mean_of_densities(tmp_path: Path) -> None:
    row = mean_concentrations({"x": [(fabricated(tmp_path), LOGITS[:2])]})[0]
    points = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    each = [dirichlet.logpdf(points.T, logits.clamp(min=0).double().numpy() + 1) for logits in LOGITS[:2]]
    apart = dirichlet.logpdf(points.T, [row[f"alpha_{letter}"] for letter in "abc"]) - np.mean(each, axis=0)
    assert apart == pytest.approx(apart[0])


def test_three_of_many_classes_are_those_predicted_most_often(tmp_path: Path) -> None:
    run = fabricated(tmp_path, classes="abcde")
    logits = 5.0 * torch.eye(5)[[4, 4, 4, 1, 1, 3, 0, 3]] + torch.arange(5) / 10
    rows = mean_concentrations({"one": [(run, logits[:3])], "two": [(run, logits[3:])]})
    assert [row["predicted"] for row in rows] == ["b", "d", "e"] * 2
    assert [row["samples"] for row in rows] == [0, 0, 3, 2, 2, 0]
    assert [rows[2][f"alpha_{letter}"] for letter in "abc"] == pytest.approx([1.1, 1.3, 6.4])
    assert (rows[0]["class_a"], rows[0]["class_b"], rows[0]["class_c"]) == ("b", "d", "e")


def test_samples_without_any_evidence_stand_by_their_logits(tmp_path: Path) -> None:
    rows = mean_concentrations({"x": [(fabricated(tmp_path), torch.tensor([[-3.0, -2.0, -1.0]]))]})
    assert [row["samples"] for row in rows] == [0, 0, 1]
    assert [rows[2][f"alpha_{letter}"] for letter in "abc"] == [1, 1, 1]


def test_nothing_where_there_is_no_triangle(tmp_path: Path) -> None:
    two = fabricated(tmp_path, classes="ab")
    assert mean_concentrations({"x": [(two, torch.ones(4, 2))]}) == []
    assert mean_concentrations({"x": [(fabricated(tmp_path), torch.empty(0, 3))]}) == []
    assert mean_concentrations({}) == []


def test_a_picture_is_the_density_relative_to_no_evidence() -> None:
    _, _, points = rasterize(STEPS)
    inner = (points > 0.1).all(-1)
    for alpha in [(1, 1, 1), (1, 1, 4), (3.5, 2, 1), (9, 9, 9)]:
        expected = [np.log10(dirichlet.pdf(point, alpha) / 2) for point in points[inner]]
        found = render_density(alpha)[inner]
        # The cell of the mode shows its density.
        assert np.sort(abs(found - np.clip(expected, -1, 3)))[:-1] == pytest.approx(0, abs=1e-9)


def test_no_evidence_is_flat_and_huge_evidence_stays_finite() -> None:
    assert render_density([1, 1, 1]) == pytest.approx(0)
    for alpha in ([1e12, 1, 1e9], [1e7, 1e7, 3e7]):
        sharp = render_density(alpha)
        assert np.isfinite(sharp).all()
        assert (sharp.max(), sharp.min()) == (3, -1)


def test_three_classes_of_many_have_the_dirichlet_of_their_own_concentrations() -> None:
    alpha = np.array([[2.0, 7.0, 1.5, 4.0, 3.0]])
    drawn = np.random.default_rng(0).dirichlet(alpha[0], 20_000)[:, [3, 0, 4]]
    own = alpha[:, [3, 0, 4]]
    shares = drawn / drawn.sum(1, keepdims=True)
    for column, one in enumerate(own[0]):
        assert kstest(shares[:, column], "beta", args=(one, own.sum() - one)).pvalue > 1e-3


def test_the_picture_of_the_triangle_knows_its_probabilities() -> None:
    x, y, points = rasterize(50)
    assert points.shape == (len(y), len(x), 3)
    assert points.sum(-1) == pytest.approx(1)
    assert (points > 0).all()
    assert 0 < y[0] < y[-1] < HEIGHT
    inner = (points > 0.05).all(-1)
    there = points @ CORNERS
    places = np.stack(np.meshgrid(x, y), axis=-1)
    assert there[inner] == pytest.approx(places[inner])


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
    for run, selected in zip(runs[:2], (2, 1), strict=True):
        keep(run, "alder", "round-001", rows=[1, 2, 3], selected=[selected], logits_global=EVIDENCE)
    rows = STRATEGIES.data(runs)
    assert list(dict.fromkeys(row["column"] for row in rows)) == ["feal", "random (plain loss)"]
    assert [row["samples"] for row in rows] == [0, 1, 0, 1, 0, 0]
    assert {row["round"] for row in rows} == {2}


@pytest.mark.parametrize("plot", [ROUNDS, STRATEGIES])
def test_without_diagnostics_or_three_classes_there_is_nothing_to_see(tmp_path: Path, plot: Plot) -> None:
    two = fabricated(tmp_path / "two", classes="ab")
    keep(two, "alder", "round-001", rows=[1, 2], selected=[1], logits_global=np.ones((2, 2), np.float32))
    segmentation = fabricated(tmp_path / "masks", task="segmentation")
    keep(segmentation, "alder", "round-001", rows=[1], aleatoric_global=[0.5])
    for run in (fabricated(tmp_path / "none"), two, segmentation):
        assert plot.data([run]) == []


def triangles(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.images]


def ticks(rows: list[dict[str, object]]) -> list[str]:
    """The labels of the colour bar."""
    return [text.get_text() for text in ROUNDS.draw(rows).axes[-1].get_xticklabels()]


def test_columns_go_on_below() -> None:
    for columns, across in ((5, 5), (7, 4)):
        figure = ROUNDS.draw(_rows(columns))
        figure.draw_without_rendering()
        boxes = [axes.get_position() for axes in triangles(figure)]
        assert len(boxes) == 3 * columns
        assert len({round(box.x0, 3) for box in boxes}) == across
        assert len({round(box.y0, 3) for box in boxes}) == 3 * -(-columns // across)


def test_colours_reach_as_far_as_the_brightest_triangle() -> None:
    assert ticks(_rows(1)) == ["≤ 0.1", "1", "10"]
    sharp = [{**row, "alpha_a": 1e6} for row in _rows(1)]
    assert ticks(sharp) == ["≤ 0.1", "1", "10", "100", "≥ 1000"]
    assert render_density([1e6, 1, 1])[0, 0] == 3


def test_a_plot_holds_every_triangle_and_stays_small() -> None:
    figure = ROUNDS.draw(_rows(11))
    shown = triangles(figure)
    assert len(shown) == 33
    assert {"arm 0", "arm 10"} <= {axes.get_title() for axes in shown}
    assert {"n = 10", "none", "A", "predicted\nC"} <= {text.get_text() for axes in shown for text in axes.texts}
    assert len(save_plot(figure, "svg")) < 800_000


def test_a_class_that_is_never_predicted_is_an_empty_triangle() -> None:
    rows = [{**row, "samples": 0, **dict.fromkeys(("alpha_a", "alpha_b", "alpha_c"))} for row in _rows(1)]
    rows[0] = _rows(1)[0]
    assert len(triangles(ROUNDS.draw(rows))) == 1


def test_a_part_of_the_rows_is_drawn_all_the_same() -> None:
    rows = [row for row in _rows(4) if row["predicted"] == "b"]
    assert len(triangles(ROUNDS.draw(rows))) == 4
