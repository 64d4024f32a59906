"""Exact copies among a pool's rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

BATCH = 1024
GLANCE = 4  # columns that tell most rows apart


def first_copies(features: Tensor, norms: Tensor, most: int) -> Tensor | None:
    """The rows [K], ascending, that are left when each row keeps its first `most` copies; None if all are.

    Of many equal rows only the first n + 1 can be among anyone's n nearest, as ties go by index: the others
    need not be looked at. Mostly the norms and a few columns tell that there are none.
    """
    rows = _alike(torch.arange(len(features)), norms, most)
    if rows.numel():
        glance = features[:, :: max(1, features.shape[1] // GLANCE)].contiguous()
        rows = _alike(rows, _keys(glance, rows), most)
    surplus = _surplus(features, rows, most) if rows.numel() else rows
    if not surplus.numel():
        return None
    left = torch.ones(len(features), dtype=torch.bool)
    left[surplus] = False
    return left.nonzero()[:, 0]


def _alike(rows: Tensor, keys: Tensor, most: int) -> Tensor:
    """The rows that share their key with at least `most` others."""
    ascending = np.sort(keys.numpy())  # several times as fast as torch's, and mostly all that is needed
    if not (ascending[most:] == ascending[:-most]).any():
        return rows[:0]
    keys, order = keys.sort()
    size = keys.unique_consecutive(return_counts=True)[1]
    return rows[order[size.repeat_interleave(size) > most]].sort().values


def _surplus(features: Tensor, rows: Tensor, most: int) -> Tensor:
    """Those of the rows that equal at least `most` earlier ones."""
    keys, order = _keys(features, rows).sort(stable=True)
    rows = rows[order]
    size = keys.unique_consecutive(return_counts=True)[1]
    leader = (size.cumsum(0) - size).repeat_interleave(size)
    equal = _equal(features, rows, rows[leader])  # two different rows may share a key
    copies = equal.cumsum(0)
    return rows[equal & (copies - copies[leader] >= most)]


def _keys(features: Tensor, rows: Tensor) -> Tensor:
    """A number for each row that is the same for equal rows, in whatever order its terms are summed."""
    halves = features.element_size() // 4
    padding = (0, features.shape[1] * halves % 2)
    width = (features.shape[1] * halves + 1) // 2
    weights = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(0))
    odd = 2 * weights + 1
    parts = [
        (pad(features.index_select(0, part), padding).view(torch.int64) * odd).sum(1) for part in rows.split(BATCH)
    ]
    return torch.cat(parts)


def _equal(features: Tensor, left: Tensor, right: Tensor) -> Tensor:
    pairs = zip(left.split(BATCH), right.split(BATCH), strict=True)
    return torch.cat([(features.index_select(0, a) == features.index_select(0, b)).all(1) for a, b in pairs])
