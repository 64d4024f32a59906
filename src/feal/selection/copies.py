"""Exact copies among a pool's rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

BATCH = 1024


def first_copies(features: Tensor, norms: Tensor, most: int) -> Tensor | None:
    """The rows [K], ascending, that are left when each row keeps its first `most` copies; None if all are.

    Of many equal rows only the first n + 1 can be among anyone's n nearest, as ties go by index: the others
    need not be looked at. Equal rows have equal norms, so mostly the norms tell at once that there are none.
    """
    _, group, size = norms.unique(return_inverse=True, return_counts=True)
    suspects = (size[group] > most).nonzero()[:, 0]
    if not suspects.numel():
        return None
    surplus = _surplus(features, suspects, most)
    left = torch.ones(len(features), dtype=torch.bool)
    left[surplus] = False
    return left.nonzero()[:, 0] if surplus.numel() else None


def _surplus(features: Tensor, rows: Tensor, most: int) -> Tensor:
    """Those of the rows that equal at least `most` earlier ones."""
    keys, order = _keys(features, rows).sort(stable=True)
    rows = rows[order]
    _, run, length = keys.unique_consecutive(return_inverse=True, return_counts=True)
    leader = (length.cumsum(0) - length)[run]
    equal = _equal(features, rows, rows[leader])  # two different rows may share a key
    copies = equal.cumsum(0)
    return rows[equal & (copies - copies[leader] >= most)]


def _keys(features: Tensor, rows: Tensor) -> Tensor:
    """A number for each row that is the same for equal rows, in whatever order its terms are summed."""
    width = -(-features.shape[1] * features.element_size() // 8)
    weights = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(0))
    odd = 2 * weights + 1
    padding = (0, features.shape[1] % 2 if features.element_size() == 4 else 0)
    parts = [(pad(features[part], padding).view(torch.int64) * odd).sum(1) for part in rows.split(BATCH)]
    return torch.cat(parts)


def _equal(features: Tensor, left: Tensor, right: Tensor) -> Tensor:
    pairs = zip(left.split(BATCH), right.split(BATCH), strict=True)
    return torch.cat([(features[a] == features[b]).all(1) for a, b in pairs])
