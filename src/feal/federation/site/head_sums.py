"""Sum a site's labelled samples for the ridge head of `model=frozen`, and tabulate their leave-one-out losses."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from feal.federation.closed_form import LOSSES, adapt_head
from feal.federation.site.training import LabelledSamples
from feal.models import FrozenNetwork
from feal.models.heads import find_fixed
from feal.models.ridge import RidgeSums, share_classes, sum_samples, tabulate_losses
from feal.selection import SelectionContext
from feal.tensors import Tensors

_BATCH = 64


class LabelledCells(NamedTuple):
    """Features and class shares of a few samples: one row a sample, or a row for every cell of their maps."""

    features: torch.Tensor
    """float32 [m, D]."""
    shares: torch.Tensor
    """float64 [m, C]."""
    cells: int
    """Rows of one sample."""
    pixels: float
    """Pixels of a mask in one row; 1 in classification."""


def compute_head_sums(
    samples: LabelledSamples, context: SelectionContext, weights: Tensors, params: FrozenNetwork.Params
) -> Tensors:
    """Return what a site sends for the ridge head: its sums or, given those of all sites, leave-one-out losses."""
    counts, balance = context.total_counts, params.find_balance(context.task)
    if "gram" not in weights:
        return sum_labelled(samples, counts, balance=balance).tensors()
    total, penalty = RidgeSums.from_tensors(weights), find_fixed(params.lambda_)
    return {LOSSES: tabulate_labelled(samples, counts, balance=balance, total=total, penalty=penalty)}


def fit_own_head(
    samples: LabelledSamples, context: SelectionContext, weights: Tensors, params: FrozenNetwork.Params
) -> Tensors:
    """Return the site's own ridge head near the global one; the global one for a site without labels."""
    if not len(samples):
        return weights
    own = sum_labelled(samples, context.site_counts, balance=params.find_balance(context.task))
    return adapt_head(weights, own, task=context.task)


def sum_labelled(samples: LabelledSamples, counts: torch.Tensor, *, balance: float) -> RidgeSums:
    """Return the sums of all labelled samples, weighted by n_c ** -balance.

    Shapes: counts [C] of labelled samples, or pixels, of each class.
    """
    total: RidgeSums | None = None
    for part in _read_cells(samples, len(counts)):
        sums = sum_samples(part.features, part.shares, (counts / part.pixels) ** balance)
        total = sums if total is None else total + sums
    assert total is not None, "a site without labels sends no sums"
    return total


def tabulate_labelled(
    samples: LabelledSamples,
    counts: torch.Tensor,
    *,
    balance: float,
    total: RidgeSums,
    penalty: float | None = None,
) -> torch.Tensor:
    """Return the leave-one-out losses of all labelled samples, see `tabulate_losses`; of masks, by image."""
    tables = [
        tabulate_losses(
            part.features,
            part.shares,
            (counts / part.pixels) ** balance,
            total=total,
            penalty=penalty,
            group=part.cells,
        )
        for part in _read_cells(samples, len(counts))
    ]
    return torch.stack(tables).sum(0)


def _read_cells(samples: LabelledSamples, classes: int) -> Iterator[LabelledCells]:
    for batch in torch.arange(len(samples)).split(_BATCH):
        inputs, target = samples.read(batch)
        inputs = inputs.float().cpu()
        if inputs.ndim == 2:
            yield LabelledCells(inputs, share_classes(target, classes), 1, 1.0)
            continue
        height, width = inputs.shape[2:]
        yield LabelledCells(
            inputs.movedim(1, -1).flatten(0, -2),
            share_classes(target, classes, cells=(height, width)),
            height * width,
            target[0].numel() / (height * width),
        )
