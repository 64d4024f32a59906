"""Dirichlet densities on the triangle of three classes: over the rounds, and across strategies."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

from feal.analysis.outputs import make_context, read_pool_logits, read_selected_logits
from feal.analysis.plots.base import PLOTS, PlotRows, matplotlib_style
from feal.analysis.plots.theme import INK
from feal.analysis.runs import Run, group_by_arm, pick_arm
from feal.analysis.stats import Floats
from feal.errors import FealError, unknown_name_error

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

Logits = Sequence[tuple[Run, "torch.Tensor"]]
"""Runs, each with logits [n, C] of its global model."""
Corners = tuple[int, int, int]

HEIGHT = math.sqrt(3) / 2
"""Of the triangle whose sides are 1."""
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])
"""Where each class has all the probability: left, right, top."""
LETTERS = "ABC"
STEPS = 48
"""Cells across a triangle."""
MAX_COLUMNS = 5
"""Columns before the next ones go below."""
DARKEST, BRIGHTEST = -1, 3
"""Decimal logarithms of the densities beyond which colours do not change."""
_PITCH = (1.2, HEIGHT + 0.5)
_LEFT = 1.15
"""Room for the labels of rows, where a triangle's side is 1."""
_LINE = 0.22
_WRAP = 10
_BAR = 0.08
"""Height of the colour bar in inches."""


@PLOTS.register("simplex-rounds", summary="Dirichlet simplexes of three classes over the rounds")
class SimplexRounds:
    """The global model's belief about unlabelled samples, from round to round."""

    title: ClassVar[str] = "The global model's belief about unlabelled samples, round by round"
    reading: ClassVar[str] = (
        "A triangle contains all probabilities of three classes; its colour is the Dirichlet density with the "
        "mean concentration of all unlabelled samples predicted as that row's class (of more than three "
        "classes, those three predicted most often, their probabilities divided by their sum); the dot is the "
        "expected probability. A small bright spot means little epistemic uncertainty, a spot near a corner "
        "little aleatoric uncertainty, and an even colour no evidence at all."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "three classes, and the sites' diagnostics of unlabelled samples (diagnostics=true)"

    @staticmethod
    def data(runs: Sequence[Run], *, classes: Sequence[str] | None = None) -> PlotRows:
        """Return mean concentrations of one arm (feal if there is one), over all its sites and seeds."""
        arm, members = pick_arm(runs)
        rounds = sorted({record.round for run in members for record in run.rounds})
        columns = {
            f"round {number}": [(run, read_pool_logits(run, number)) for run in members] for number in rounds
        }
        return [{"arm": arm, **row} for row in mean_concentrations(columns, classes=classes)]

    @staticmethod
    def draw(rows: PlotRows) -> Figure:
        """Draw triangles, one column a round."""
        return draw_triangles(rows)


@PLOTS.register("simplex-strategies", summary="Dirichlet simplexes of what each strategy selected in one round")
class SimplexStrategies:
    """The global model's belief about the samples that each strategy selected."""

    title: ClassVar[str] = "The global model's belief about the samples selected for the second round"
    reading: ClassVar[str] = (
        "As over the rounds, but for the samples that each strategy selected after the first round, which "
        "starts with the same labels for all: the wider and the more central the bright area, the less the "
        "model knew about the selected samples. Only a model trained with the evidential loss learns "
        "evidence; for another loss, which is then named, the density is computed from its logits all the "
        "same."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "three classes, two rounds, and the sites' diagnostics of samples (diagnostics=true)"

    @staticmethod
    def data(runs: Sequence[Run], *, round_: int = 2, classes: Sequence[str] | None = None) -> PlotRows:
        """Return mean concentrations of the samples selected for `round_`, over all sites and seeds."""
        columns = {
            _describe_loss(name, members[0]): [(run, read_selected_logits(run, round_ - 1)) for run in members]
            for name, members in group_by_arm(runs).items()
        }
        return [{"round": round_, **row} for row in mean_concentrations(columns, classes=classes)]

    @staticmethod
    def draw(rows: PlotRows) -> Figure:
        """Draw triangles, one column an arm."""
        return draw_triangles(rows)


def _describe_loss(arm: str, run: Run) -> str:
    loss = run.settings.loss_name
    return arm if loss == "evidential" or f" {loss}" in arm else f"{arm} ({loss} loss)"


def mean_concentrations(columns: Mapping[str, Logits], *, classes: Sequence[str] | None = None) -> PlotRows:
    """Return a row for every column and each of three classes: the mean concentration of samples predicted so.

    The Dirichlet with the mean concentration is the normalised geometric mean of the samples' own. If p has the
    Dirichlet distribution alpha, then (p_i, p_j, p_k) / (p_i + p_j + p_k) has the Dirichlet distribution
    (alpha_i, alpha_j, alpha_k), so with more than three classes the others need not be integrated out.

    Args:
        columns: runs and logits, by the name of a column; one without any sample is left out.
        classes: names of three classes; by default those predicted most often over all columns.

    Returns:
        Rows with None as concentration where no sample is predicted so; none at all with fewer than three classes,
        or without samples.

    Raises:
        FealError: there are not three different classes, or one does not exist.
    """
    import torch

    columns = {name: members for name, members in columns.items() if any(len(logits) for _, logits in members)}
    pairs = [pair for members in columns.values() for pair in members]
    logits = [values for _, values in pairs if len(values)]
    if not logits or logits[0].shape[1] < 3:
        return []
    names = pairs[0][0].classes
    corners = _find_classes(names, classes) if classes is not None else _most_predicted(torch.cat(logits))
    return [
        {
            "column": column,
            "predicted": names[corner],
            **{f"class_{letter}": names[at] for letter, at in zip("abc", corners, strict=True)},
            **_average(members, corner, corners),
        }
        for column, members in columns.items()
        for corner in corners
    ]


def _most_predicted(logits: torch.Tensor) -> Corners:
    """Return the indices of the classes predicted most often, in their order; of equal ones the first."""
    import torch

    counts = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
    first, second, third = sorted(counts.argsort(descending=True, stable=True)[:3].tolist())
    return first, second, third


def _find_classes(names: Sequence[str], classes: Sequence[str]) -> Corners:
    for name in classes:
        if name not in names:
            raise unknown_name_error("class", name, names)
    if len(classes) != 3 or len(set(classes)) != 3:
        raise FealError(f"A triangle has three corners: name three different classes, not {', '.join(classes)}.")
    first, second, third = (list(names).index(name) for name in classes)
    return first, second, third


def _average(members: Logits, corner: int, corners: Corners) -> dict[str, Any]:
    own = np.concatenate([_concentrations(run, logits, corner)[:, list(corners)] for run, logits in members])
    mean = own.mean(0).tolist() if len(own) else [None] * 3
    return {"samples": len(own), **{f"alpha_{letter}": value for letter, value in zip("abc", mean, strict=True)}}


def _concentrations(run: Run, logits: torch.Tensor, corner: int) -> Floats:
    """Return concentrations [n, C] of the samples predicted as a class."""
    predicted = logits[logits.argmax(1) == corner].double()
    return make_context(run).concentration(predicted).numpy()


def log_density(alpha: ArrayLike, points: ArrayLike) -> Floats:
    """Return the logarithm of the Dirichlet density, over the first C - 1 probabilities.

    lnGamma(S) - sum_c lnGamma(alpha_c) + sum_c (alpha_c - 1) ln p_c, S = sum_c alpha_c; it does not overflow for
    large concentrations. A uniform Dirichlet of three classes has ln 2 everywhere.

    Shapes: alpha [C], points [..., C] that sum to 1; the result is [...].
    Errors: ValueError for a concentration that is not above 0.

    >>> float(np.exp(log_density([1, 1, 1], [0.2, 0.3, 0.5])).round(12))
    2.0
    """
    concentration = np.asarray(alpha, dtype=np.float64)
    if not bool((concentration > 0).all()):
        raise ValueError(f"a concentration is above 0, not {concentration.min()}")
    normaliser = gammaln(concentration.sum()) - gammaln(concentration).sum()
    density: Floats = normaliser + xlogy(concentration - 1, np.asarray(points, dtype=np.float64)).sum(-1)
    return density


def to_positions(points: ArrayLike) -> Floats:
    """Return where probabilities [..., 3] lie in the drawn triangle, [..., 2].

    >>> to_positions([0.0, 0.0, 1.0]).round(3).tolist()
    [0.5, 0.866]
    """
    places: Floats = np.asarray(points, dtype=np.float64) @ CORNERS
    return places


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


@dataclass(frozen=True)
class Triangle:
    """A row of the data, and the position of its triangle's left corner."""

    row: dict[str, Any]
    x: float
    y: float

    @property
    def alpha(self) -> list[float]:
        """Return the mean concentration; empty where no sample is predicted so."""
        values = [self.row[f"alpha_{letter}"] for letter in "abc"]
        return [] if None in values else values

    def shift(self, points: Floats) -> Floats:
        """Return positions in the triangle [..., 2] as positions in the plot."""
        moved: Floats = points + np.array([self.x, self.y])
        return moved

    def mean(self) -> Floats:
        """Return the position of the expected probabilities, [2]."""
        alpha = np.array(self.alpha)
        return self.shift(to_positions(alpha / alpha.sum()))

    def image(self) -> NDArray[np.float32]:
        """Return the decimal logarithm of the density over the uniform Dirichlet's, [h, w], clipped."""
        x, y, points = rasterize(STEPS)
        density = log_density(self.alpha, points)
        evidence = np.array(self.alpha) - 1
        if evidence.sum() > 0:
            # A peak may be narrower than a cell, which must not hide it.
            mode = evidence / evidence.sum()
            right, up = to_positions(mode)
            density[abs(y - up).argmin(), abs(x - right).argmin()] = log_density(self.alpha, mode)
        relative = (density - math.log(2)) / math.log(10)
        return relative.clip(DARKEST, BRIGHTEST).astype(np.float32)


@dataclass(frozen=True)
class TriangleLayout:
    """All triangles, in blocks of at most `MAX_COLUMNS` columns, with positions (x, y) and texts around them."""

    triangles: list[Triangle]
    headings: list[tuple[float, float, str]]
    labels: list[tuple[float, float, str]]
    width: float
    height: float

    @property
    def brightest(self) -> float:
        """Return where colours end: at the densest point of all triangles, within limits."""
        densest = max((float(one.image().max()) for one in self.triangles if one.alpha), default=0.0)
        return min(float(BRIGHTEST), max(1.0, densest))

    @property
    def ticks(self) -> dict[int, str]:
        """Return the powers of ten of the colour bar."""
        written = {power: f"{10.0**power:g}" for power in range(DARKEST, int(self.brightest) + 1)}
        beyond = {DARKEST: "≤", BRIGHTEST: "≥"}
        return {power: f"{beyond.get(power, '')} {text}".strip() for power, text in written.items()}


def arrange_triangles(rows: PlotRows) -> TriangleLayout:
    """Return a position for every row: a line for each predicted class, a column for each round or strategy."""
    corners = [rows[0][f"class_{letter}"] for letter in "abc"]
    columns = list(dict.fromkeys(row["column"] for row in rows))
    triangles, headings, labels = [], [], []
    top = 0.0
    blocks = math.ceil(len(columns) / MAX_COLUMNS)
    across = math.ceil(len(columns) / blocks)
    for start in range(0, len(columns), across):
        block = [(name, textwrap.wrap(name, _WRAP)) for name in columns[start : start + across]]
        top -= 0.3 + _LINE * max(len(lines) for _, lines in block)
        headings += [(p * _PITCH[0] + 0.5, top + 0.25, "\n".join(lines)) for p, (_, lines) in enumerate(block)]
        for line, letter in enumerate(LETTERS):
            bottom = top - HEIGHT
            labels.append((-0.15, bottom + HEIGHT / 2, f"predicted\n{letter}"))
            for place, (name, _) in enumerate(block):
                own = [row for row in rows if (row["column"], row["predicted"]) == (name, corners[line])]
                triangles += [Triangle(row, place * _PITCH[0], bottom) for row in own]
            top -= _PITCH[1]
    return TriangleLayout(triangles, headings, labels, across * _PITCH[0], -top)


@matplotlib_style()
def draw_triangles(rows: PlotRows) -> Figure:
    """Draw the triangles of all rows with a common scale of colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    layout = arrange_triangles(rows)
    figure = Figure(figsize=(max(3.5, layout.width + _LEFT), layout.height + 0.5), layout="constrained")
    # Separate axes: a colour bar taken from those of the triangles would be a share of their height.
    axes, below = figure.subplots(2, 1, height_ratios=(layout.height, _BAR))
    colours = Normalize(DARKEST, layout.brightest)
    for triangle in layout.triangles:
        _draw_triangle(axes, triangle, colours)
    for x, y, text in layout.headings:
        axes.text(x, y, text, ha="center", va="bottom")
    for x, y, text in layout.labels:
        axes.text(x, y, text, ha="right", va="center")
    axes.set(xlim=(-_LEFT, layout.width), ylim=(-layout.height, 0), aspect="equal")
    axes.set_axis_off()
    names = [f"{letter} = {rows[0][f'class_{letter.lower()}']}" for letter in LETTERS]
    # Lines may break between classes only.
    title = "   ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)
    figure.suptitle("\n".join(textwrap.wrap(title, int(18 * figure.get_figwidth()))), fontsize=8)
    bar = figure.colorbar(
        ScalarMappable(norm=colours, cmap="viridis"),
        cax=below,
        orientation="horizontal",
        label="density relative to no evidence",
    )
    bar.set_ticks(list(layout.ticks), labels=list(layout.ticks.values()))
    return figure


def _draw_triangle(axes: Axes, triangle: Triangle, colours: Normalize) -> None:
    from matplotlib.patches import Polygon

    outline = Polygon(triangle.shift(CORNERS), fill=False, edgecolor=INK, linewidth=0.7)
    axes.add_patch(outline)
    if triangle.alpha:
        extent = (triangle.x, triangle.x + 1, triangle.y, triangle.y + HEIGHT)
        look: dict[str, Any] = {"cmap": "viridis", "origin": "lower", "interpolation": "bilinear"}
        axes.imshow(triangle.image(), norm=colours, extent=extent, **look).set_clip_path(outline)
        axes.plot(*triangle.mean(), marker="o", markersize=3, color="white", markeredgecolor="black")
    count = triangle.row["samples"]
    note = f"n = {count}" if count else "none"
    axes.text(triangle.x + 0.5, triangle.y - 0.15, note, ha="center", va="center", fontsize=6)
    if not triangle.x:
        beside = CORNERS + np.array([[0.0, -0.1], [0.0, -0.1], [0.0, 0.15]])
        for (x, y), letter in zip(triangle.shift(beside).tolist(), LETTERS, strict=True):
            axes.text(x, y, letter, ha="center", va="center", fontsize=6)
