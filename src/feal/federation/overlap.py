"""How well predicted masks cover the true ones: Dice and HD95 of each image, for classes and regions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Regions = Mapping[str, Sequence[int]]
"""What figures are given for: a name, and the classes that make up the region."""

PERCENTILE = 95


def class_dice(truth: torch.Tensor, found: torch.Tensor, *, classes: int) -> torch.Tensor:
    """Dice of each image and class, [n, classes], from integer maps [n, H, W]; see `dice`."""
    return torch.stack([dice(truth == number, found == number) for number in range(classes)], dim=1)


def region_scores(truth: torch.Tensor, found: torch.Tensor, regions: Regions) -> tuple[torch.Tensor, torch.Tensor]:
    """Dice and HD95 of each image and region, both [n, regions], from integer maps [n, H, W]."""
    scores = [torch.empty(len(truth), 0), torch.empty(len(truth), 0, dtype=torch.float64)]
    pairs = [(_inside(truth, members), _inside(found, members)) for members in regions.values()]
    if pairs:
        scores = [torch.stack([score(*pair) for pair in pairs], dim=1) for score in (dice, hd95)]
    return scores[0], scores[1]


def dice(truth: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """2 |A and B| / (|A| + |B|) of each image, [n], from masks [n, H, W].

    Where both are empty there is no score (NaN); where one of them is, it is 0.

    >>> dice(torch.tensor([[[True, True]], [[False, False]]]), torch.tensor([[[True, False]], [[False, False]]]))
    tensor([0.6667,    nan])
    """
    truth, found = truth.flatten(1), found.flatten(1)
    return 2.0 * (truth & found).sum(1) / (truth.sum(1) + found.sum(1))


def hd95(truth: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """95 % Hausdorff distance of each image in pixels, float64 [n], from masks [n, H, W].

    An edge pixel has one of its four neighbours outside the mask, or lies at the image's border. From each edge
    pixel of one mask the distance to the nearest of the other is taken; the larger of both directions' 95th
    percentiles counts, as in MONAI's `compute_hausdorff_distance(percentile=95)`. Where both masks are empty there
    is no score (NaN); where one of them is, it is the image's diagonal, which no pair of pixels can exceed.

    >>> hd95(torch.tensor([[[True, False, False]]]), torch.tensor([[[False, False, True]]]))
    tensor([2.], dtype=torch.float64)
    """
    masks = zip(truth.cpu().numpy(), found.cpu().numpy(), strict=True)
    return torch.tensor([_hd95(one, other) for one, other in masks], dtype=torch.float64)


def _hd95(truth: NDArray[np.bool_], found: NDArray[np.bool_]) -> float:
    one, other = _edge(truth), _edge(found)
    if not len(one) and not len(other):
        return math.nan
    if not len(one) or not len(other):
        return math.hypot(*truth.shape)
    return max(_directed(one, other), _directed(other, one))


def _directed(here: NDArray[np.float64], there: NDArray[np.float64]) -> float:
    from scipy.spatial import KDTree

    # Edges are few among an image's pixels: a tree of them takes a fifth of the time of a distance transform.
    distances = KDTree(there, leafsize=32).query(here)[0]
    return float(np.percentile(distances, PERCENTILE))


def _edge(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Places of the edge pixels, [n, 2]."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.argwhere(mask & ~inner).astype(np.float64)


def _inside(classes: torch.Tensor, members: Sequence[int]) -> torch.Tensor:
    inside = classes == members[0]
    for member in members[1:]:
        inside |= classes == member
    return inside
