"""Dirichlet densities on the triangle of three classes: over the rounds, and across strategies."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from scipy.stats import dirichlet

from feal.analysis.arms import Arm, group_by_arm, pick_arm
from feal.analysis.outputs import make_context, read_pool_logits, read_selected_logits
from feal.analysis.plots.base import PLOTS, Plot, PlotRows
from feal.analysis.plots.theme import INK, MATPLOTLIB_STYLE
from feal.analysis.runs import Run
from feal.analysis.stats import Floats

Logits = Sequence[tuple[Run, torch.Tensor]]
"""Runs, each with logits [n, C] of its global model."""

HEIGHT = math.sqrt(3) / 2
"""Of the triangle whose sides are 1."""
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])
"""Where each class has all the probability: left, right, top; probabilities [..., 3] lie at p @ CORNERS."""
STEPS = 48
"""Cells across a triangle."""
MAX_COLUMNS = 5
"""Columns before the next ones go below."""
DARKEST, BRIGHTEST = -1, 3
"""Decimal logarithms of the densities beyond which colours do not change."""
_LETTER_PLACES = CORNERS + np.array([[0.0, -0.1], [0.0, -0.1], [0.0, 0.12]])
_PITCH = 1.2, 1.4
"""Inches from a triangle to the next, across and down."""
_NBSP = "\N{NO-BREAK SPACE}"
_BAR = 0.08
"""Height of the colour bar in inches."""


def _read_rounds(runs: Sequence[Run]) -> PlotRows:
    """Return mean concentrations of one arm (feal if there is one), over all its sites and seeds."""
    arm = pick_arm(runs)
    rounds = sorted({record.round for run in arm.runs for record in run.rounds})
    columns = {f"round {number}": [(run, read_pool_logits(run, number)) for run in arm.runs] for number in rounds}
    return [{"arm": arm.name, **row} for row in mean_concentrations(columns)]


def _read_strategies(runs: Sequence[Run]) -> PlotRows:
    """Return mean concentrations of the samples selected for the second round, over all sites and seeds."""
    columns = {
        _describe_loss(arm): [(run, read_selected_logits(run, 1)) for run in arm.runs]
        for arm in group_by_arm(runs)
    }
    return [{"round": 2, **row} for row in mean_concentrations(columns)]


def _describe_loss(arm: Arm) -> str:
    is_clear = arm.loss == "evidential" or f" {arm.loss}" in arm.name
    return arm.name if is_clear else f"{arm.name} ({arm.loss} loss)"


def mean_concentrations(columns: Mapping[str, Logits]) -> PlotRows:
    """Return a row for every column and each of three classes: the mean concentration of samples predicted so.

    The classes are those predicted most often over all columns. The Dirichlet with the mean concentration is the
    normalised geometric mean of the samples' own. If p has the Dirichlet distribution alpha, then
    (p_i, p_j, p_k) / (p_i + p_j + p_k) has the Dirichlet distribution (alpha_i, alpha_j, alpha_k), so with more
    than three classes the others need not be integrated out.

    Args:
        columns: runs and logits, by the name of a column; one without any sample is left out.

    Returns:
        Rows with None as concentration where no sample is predicted so; none at all with fewer than three classes,
        or without samples.
    """
    columns = {name: members for name, members in columns.items() if any(len(logits) for _, logits in members)}
    pairs = [pair for members in columns.values() for pair in members]
    if not pairs or pairs[0][1].shape[1] < 3:
        return []
    names = pairs[0][0].classes
    counts = torch.bincount(torch.cat([logits for _, logits in pairs]).argmax(1), minlength=len(names))
    # In their order; of classes predicted equally often the first.
    corners = sorted(counts.argsort(descending=True, stable=True)[:3].tolist())
    rows = []
    for column, members in columns.items():
        predicted = torch.cat([logits.argmax(1) for _, logits in members])
        alpha = torch.cat([make_context(run).concentration(logits.double()) for run, logits in members])
        for corner in corners:
            own = alpha[predicted == corner][:, corners]
            mean = own.mean(0).tolist() if len(own) else [None] * 3
            rows.append(
                {
                    "column": column,
                    "predicted": names[corner],
                    **{f"class_{letter}": names[at] for letter, at in zip("abc", corners, strict=True)},
                    "samples": len(own),
                    **{f"alpha_{letter}": value for letter, value in zip("abc", mean, strict=True)},
                }
            )
    return rows


def rasterize(steps: int) -> tuple[Floats, Floats, Floats]:
    """Return the centres of the cells of a triangle's image: x [w], y [h], and probabilities [h, w, 3].

    `steps` cells are as wide as the triangle. Cells outside and on the border get the probabilities of the
    nearest point a quarter of a cell inside, so that the image can be smoothed before it is clipped.
    """
    x = (np.arange(steps) + 0.5) / steps
    rows = math.ceil(steps * HEIGHT)
    y = (np.arange(rows) + 0.5) / rows * HEIGHT
    top = np.repeat((y / HEIGHT)[:, None], steps, axis=1)
    right = x[None, :] - top / 2
    inside = np.stack([1 - right - top, right, top], axis=-1).clip(min=0.25 / steps)
    return x, y, inside / inside.sum(-1, keepdims=True)


def render_density(alpha: Sequence[float]) -> Floats:
    """Return the decimal logarithm of a Dirichlet's density over the uniform one's, [h, w], clipped."""
    x, y, points = rasterize(STEPS)
    density: Floats = dirichlet.logpdf(points.reshape(-1, 3).T, alpha).reshape(points.shape[:2])
    evidence = np.array(alpha) - 1
    if evidence.sum() > 0:
        # A peak may be narrower than a cell, which must not hide it.
        mode = evidence / evidence.sum()
        right, up = mode @ CORNERS
        density[abs(y - up).argmin(), abs(x - right).argmin()] = dirichlet.logpdf(mode, alpha)
    return ((density - math.log(2)) / math.log(10)).clip(DARKEST, BRIGHTEST)


@mpl.rc_context(MATPLOTLIB_STYLE)
def draw_triangles(rows: PlotRows) -> Figure:
    """Draw a triangle for every row: a line for each predicted class, a column for each round or strategy.

    Colours are common and end at the densest point of all triangles, within limits.
    """
    corners = [rows[0][f"class_{letter}"] for letter in "abc"]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    blocks = math.ceil(len(columns) / MAX_COLUMNS)
    across = math.ceil(len(columns) / blocks)
    width, height = max(3.5, _PITCH[0] * across + 1), 3 * _PITCH[1] * blocks + 1
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(3 * blocks, across, squeeze=False)
    for axes in grid.flat:
        axes.set(xlim=(-0.05, 1.05), ylim=(-0.2, HEIGHT + 0.2), aspect="equal")
        axes.set_axis_off()
    alphas = [[row[f"alpha_{letter}"] for letter in "abc"] for row in rows]
    images = [None if None in alpha else render_density(alpha) for alpha in alphas]
    densest = max((float(image.max()) for image in images if image is not None), default=0.0)
    colours = Normalize(DARKEST, min(BRIGHTEST, max(1.0, densest)))
    for row, alpha, image in zip(rows, alphas, images, strict=True):
        block, column = divmod(columns.index(row["column"]), across)
        line = corners.index(row["predicted"])
        axes = grid[3 * block + line, column]
        _draw_triangle(axes, row["samples"], alpha, image, colours)
        if not line:
            axes.set_title("\n".join(textwrap.wrap(row["column"].replace(" loss)", f"{_NBSP}loss)"), 15)))
        if not column:
            axes.text(-0.3, HEIGHT / 2, f"predicted\n{'ABC'[line]}", ha="right", va="center")
            for (x, y), letter in zip(_LETTER_PLACES.tolist(), "ABC", strict=True):
                axes.text(x, y, letter, ha="center", va="center", fontsize=6)
    # Lines may break between classes only.
    names = [f"{letter} = {name}".replace(" ", _NBSP) for letter, name in zip("ABC", corners, strict=True)]
    figure.suptitle("\n".join(textwrap.wrap("   ".join(names), int(18 * width))), fontsize=8)
    bar = figure.colorbar(
        ScalarMappable(norm=colours, cmap="viridis"),
        ax=grid,
        location="bottom",
        fraction=_BAR / height,
        aspect=0.8 * width / _BAR,
        label="density relative to no evidence",
    )
    beyond = {DARKEST: "≤ ", BRIGHTEST: "≥ "}
    powers = range(DARKEST, int(colours.vmax or 0) + 1)
    bar.set_ticks(list(powers), labels=[f"{beyond.get(power, '')}{10.0**power:g}" for power in powers])
    return figure


def _draw_triangle(
    axes: Axes, samples: int, alpha: Sequence[Any], image: Floats | None, colours: Normalize
) -> None:
    outline = Polygon(CORNERS, fill=False, edgecolor=INK, linewidth=0.7)
    axes.add_patch(outline)
    if image is not None:
        look: dict[str, Any] = {"cmap": "viridis", "origin": "lower", "interpolation": "bilinear"}
        shown = axes.imshow(image.astype(np.float32), norm=colours, extent=(0, 1, 0, HEIGHT), **look)
        shown.set_clip_path(outline)
        mean = np.array(alpha) / sum(alpha) @ CORNERS
        axes.plot(*mean, marker="o", markersize=3, color="white", markeredgecolor="black")
    axes.text(0.5, -0.15, f"n = {samples}" if samples else "none", ha="center", va="center", fontsize=6)


PLOTS.register("simplex-rounds", summary="Dirichlet simplexes of three classes over the rounds")(
    Plot(
        title="The global model's belief about unlabelled samples, round by round",
        reading="A triangle contains all probabilities of three classes; its colour is the Dirichlet density with "
        "the mean concentration of all unlabelled samples predicted as that row's class (of more than three "
        "classes, those three predicted most often, their probabilities divided by their sum); the dot is the "
        "expected probability. A small bright spot means little epistemic uncertainty, a spot near a corner "
        "little aleatoric uncertainty, and an even colour no evidence at all.",
        section="uncertainty",
        needs="three classes, and the sites' diagnostics of unlabelled samples (diagnostics=true; all for the "
        "last round, too)",
        data=_read_rounds,
        draw=draw_triangles,
    )
)


PLOTS.register("simplex-strategies", summary="Dirichlet simplexes of what each strategy selected in one round")(
    Plot(
        title="The global model's belief about the samples selected for the second round",
        reading="As over the rounds, but for the samples that each strategy selected after the first round, which "
        "starts with the same labels for all: the wider and the more central the bright area, the less the model "
        "knew about the selected samples. Only a model trained with the evidential loss learns evidence; for "
        "another loss, which is then named, the density is computed from its logits all the same.",
        section="uncertainty",
        needs="three classes, two rounds, and the sites' diagnostics of samples (diagnostics=true)",
        data=_read_strategies,
        draw=draw_triangles,
    )
)
