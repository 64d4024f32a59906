"""Fit a class-balanced ridge head in closed form, from sums that can be added over sites.

With x the features of a sample (or of a cell of a map) and a 1 appended, s_c the share of it that is of class c
and n_c the labelled samples of class c at all sites (or a power of it, for less balance), its weight is
w = sum_c s_c / n_c. The head minimises

    sum_i w_i |W'x_i - y_i|^2 / sum_i w_i + lambda D |W|^2,   y_c = 2 s_c / n_c / w - 1,

where the bias is not penalised and D, the mean of |x|^2, makes lambda independent of the number of features. The
sums of w x x' and of w x y' over all samples are all that it takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from feal.tensors import Tensors

LAMBDAS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""What leave-one-out chooses from: penalties, and factors of the scores in the softmax."""
ABSENT = -64.0
"""Logit of a class that no site has a label of: a probability of 1e-28."""


@dataclass(frozen=True, kw_only=True)
class RidgeSums:
    """Weighted sums over labelled samples, float64."""

    gram: Tensor
    """sum w x x', [D + 1, D + 1]; its last entry is sum w."""
    moments: Tensor
    """sum w x y', [D + 1, C]."""

    def __add__(self, other: RidgeSums) -> RidgeSums:
        return RidgeSums(gram=self.gram + other.gram, moments=self.moments + other.moments)

    def __sub__(self, other: RidgeSums) -> RidgeSums:
        return RidgeSums(gram=self.gram - other.gram, moments=self.moments - other.moments)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums as tensors by name, as they travel."""
        return {"gram": self.gram, "moments": self.moments}

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> RidgeSums:
        """Return the sums that `tensors` gave."""
        return cls(gram=tensors["gram"], moments=tensors["moments"])


def share_classes(target: Tensor, classes: int, *, cells: tuple[int, int] | None = None) -> Tensor:
    """Return the share of each class in each sample, float64 [n, C], or in each cell of masks, [n * h * w, C].

    Args:
        target: classes [n], or masks [n, H, W].
        classes: C.
        cells: height and width of the maps that masks are averaged to.

    >>> share_classes(torch.tensor([[[0, 1], [1, 1]]]), 2, cells=(1, 1))
    tensor([[0.2500, 0.7500]], dtype=torch.float64)
    """
    shares = F.one_hot(target.long(), classes).double()
    if cells is None:
        return shares
    pooled = F.adaptive_avg_pool2d(shares.movedim(-1, 1), cells)
    return pooled.movedim(1, -1).flatten(0, -2)


def sum_samples(features: Tensor, shares: Tensor, counts: Tensor) -> RidgeSums:
    """Return the sums over samples.

    Shapes: features [n, D]; shares [n, C]; counts n_c [C], positive where a share is.
    """
    inputs = append_one(features)
    parts = shares * _inverse(counts)
    weight = parts.sum(1)
    return RidgeSums(gram=(inputs * weight[:, None]).T @ inputs, moments=inputs.T @ (2 * parts - weight[:, None]))


def solve_ridge(sums: RidgeSums, penalty: float) -> Tensor:
    """Return the weights and, in the last row, the bias: float64 [D + 1, C].

    The penalty keeps the system regular however few samples there are.

    Raises:
        ValueError: no sample has a weight.

    >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    >>> solve_ridge(sum_samples(x, share_classes(y, 2), torch.ones(2)), 1.0)
    tensor([[-0.5000,  0.5000],
            [ 0.0000,  0.0000]], dtype=torch.float64)
    """
    matrix, moments = _normalise(sums, penalty)
    solution: Tensor = torch.linalg.solve(matrix, moments)
    return solution


def adapt_ridge(solution: Tensor, sums: RidgeSums, penalty: float) -> Tensor:
    """Return the head that fits the samples of some sums best while it stays near a solution W: [D + 1, C].

    It minimises the loss of these samples plus lambda D |V - W|^2 over V, the bias included: a site's own head
    near the one of all sites, as local training from it would give.
    """
    matrix, moments = _normalise(sums, penalty)
    matrix[-1, -1] += penalty * (len(matrix) - 1)
    own = sums.gram / sums.gram[-1, -1]
    step: Tensor = torch.linalg.solve(matrix, moments - own @ solution)
    return solution + step


def score_left_out(
    features: Tensor, shares: Tensor, counts: Tensor, *, total: RidgeSums, penalty: float, group: int = 1
) -> Tensor:
    """Return what the head would score each sample if that sample's group were left out of the total, [n, C].

    A group is one sample, by the closed form (y^ - h y) / (1 - h) with the leverage h = w x'A^-1 x; or `group`
    consecutive cells, those of an image, which are subtracted from the sums. The weights of the others stay.
    """
    inputs = append_one(features)
    if group > 1:
        parts = []
        for start in range(0, len(inputs), group):
            rows = slice(start, start + group)
            own = sum_samples(features[rows], shares[rows], counts)
            others = total - own
            alone = not float(others.gram[-1, -1]) > 1e-9 * float(total.gram[-1, -1])
            parts.append(torch.zeros_like(shares[rows]) if alone else inputs[rows] @ solve_ridge(others, penalty))
        return torch.cat(parts)
    matrix, moments = _normalise(total, penalty)
    factor = torch.linalg.cholesky(matrix)
    weight = (shares * _inverse(counts)).sum(1) / total.gram[-1, -1]
    leverage = weight * torch.linalg.solve_triangular(factor, inputs.T, upper=False).square().sum(0)
    fitted = inputs @ torch.cholesky_solve(moments, factor)
    target = 2 * shares * _inverse(counts) / (weight * total.gram[-1, -1])[:, None] - 1
    scores: Tensor = (fitted - leverage[:, None] * target) / (1 - leverage[:, None]).clamp_min(1e-9)
    return scores


def tabulate_losses(
    features: Tensor,
    shares: Tensor,
    counts: Tensor,
    *,
    total: RidgeSums,
    penalty: float | None = None,
    group: int = 1,
) -> Tensor:
    """Return the weighted log loss of left-out samples by penalty and temperature, and last the sum of weights.

    Classes without a label have no probability, and a sample that is alone in its class does not count: left out,
    nothing is known of the class. A penalty that is given takes the row next to it, and the others stay 0.

    Shapes: as of `sum_samples`; float64 [len(LAMBDAS) * len(TEMPERATURES) + 1], to be added over sites.
    """
    present, several = counts > 0, counts > 1
    parts = shares * _inverse(counts) * several
    table = torch.zeros(len(LAMBDAS), len(TEMPERATURES), dtype=torch.float64)
    for row, value in enumerate(LAMBDAS) if penalty is None else [(_find_row(penalty), penalty)]:
        scores = score_left_out(features, shares, counts, total=total, penalty=value, group=group)
        scores = scores.masked_fill(~present, -torch.inf)
        for column, temperature in enumerate(TEMPERATURES):
            logs = torch.log_softmax(temperature * scores, dim=1).masked_fill(~present, 0)
            table[row, column] = -(parts * logs).sum()
    return torch.cat([table.flatten(), parts.sum().reshape(1)])


def choose_by_losses(
    table: Tensor, *, penalty: float | None = None, temperature: float | None = None
) -> tuple[float, float]:
    """Return the penalty and the temperature of the smallest loss, given a table as of `tabulate_losses`.

    One that is given is kept. Without any sample to judge by (the last number is 0), the middle ones are taken.
    """
    losses = table[:-1].reshape(len(LAMBDAS), len(TEMPERATURES))
    if not float(table[-1]) > 0:
        return penalty or 3e-2, temperature or 4.0
    rows = list(range(len(LAMBDAS)))
    if penalty is not None:
        rows = [_find_row(penalty)]
    columns = list(range(len(TEMPERATURES)))
    if temperature is not None:
        columns = [min(columns, key=lambda column: abs(TEMPERATURES[column] - temperature))]
    row, column = min(
        ((row, column) for row in rows for column in columns), key=lambda place: float(losses[place])
    )
    return penalty or LAMBDAS[row], temperature or TEMPERATURES[column]


def find_present(sums: RidgeSums) -> Tensor:
    """Return which classes have a sample in the sums, bool [C]."""
    weight = sums.gram[-1, -1]
    return (sums.moments[-1] + weight) / 2 > 1e-9 * weight


def _find_row(penalty: float) -> int:
    """Return the row of a penalty in a table of losses: that of the nearest one."""
    return min(range(len(LAMBDAS)), key=lambda row: abs(math.log(LAMBDAS[row] / penalty)))


def make_head(solution: Tensor, present: Tensor, temperature: float) -> dict[str, Tensor]:
    """Return the weight [C, D] and bias [C] of a linear layer, float32: the scores times the temperature.

    A class that is not `present` [C] gets the logit `ABSENT`.
    """
    weight = torch.where(present[:, None], temperature * solution[:-1].T, 0.0)
    bias = torch.where(present, temperature * solution[-1], ABSENT)
    return {"weight": weight.float(), "bias": bias.float()}


def append_one(features: Tensor) -> Tensor:
    """Return features in float64 with a last column of 1, [n, D + 1]."""
    return F.pad(features.double(), (0, 1), value=1.0)


def _normalise(sums: RidgeSums, penalty: float) -> tuple[Tensor, Tensor]:
    weight = sums.gram[-1, -1]
    if not float(weight) > 0:
        raise ValueError("the sums of a ridge head are of no sample")
    size = len(sums.gram) - 1
    ridge = torch.full((size + 1,), penalty * size, dtype=torch.float64)
    ridge[-1] = 0
    return sums.gram / weight + torch.diag(ridge), sums.moments / weight


def _inverse(counts: Tensor) -> Tensor:
    number = counts.double()
    return torch.where(number > 0, number, torch.inf).reciprocal()
