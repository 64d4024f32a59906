"""Metrics of masks: Dice and HD95 of each image, for classes and for regions made of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from feal.metrics.classification import OwnSums
from feal.metrics.registry import Metric, register_metric
from feal.metrics.statistics import Statistics, mean_of_known

if TYPE_CHECKING:
    from torch import Tensor

# torch and scipy are imported where masks are scored: commands that only print metrics start without them.

Regions = Mapping[str, Sequence[int]]
"""What masks are scored by: names, and the classes that make up each region."""

Hd95Rule = Literal["largest", "pooled"]
PERCENTILE = 95


class _RegionMetric(Metric):
    """The mean over regions of the mean score of the images that show the region."""

    tasks = ("segmentation",)

    def compute(self, statistics: Statistics, sums: OwnSums) -> float | None:
        return mean_of_known(self.compute_parts(statistics).values())

    def compute_parts(self, statistics: Statistics) -> dict[str, float | None]:
        return {
            name: getattr(region, self.name) / region.count if region.count else None
            for name, region in statistics.regions.items()
        }


@register_metric
class Dice(_RegionMetric):
    """Mean over regions of the mean Dice of the images that show the region."""

    name = "dice"
    role = "primary"


@register_metric
class Hd95(_RegionMetric):
    """Mean over regions of the mean 95 % Hausdorff distance, in pixels, of the images that show the region."""

    name = "hd95"
    title = "HD95"
    lower_is_better = True

    class Params(Metric.Params):
        """What becomes of the distances in both directions."""

        rule: Hd95Rule = Field(
            "largest",
            description="largest: the larger of both directions' 95th percentiles, as in MONAI; "
            "pooled: one of both directions' distances together, as in MedPy, usually smaller",
        )

    params: Params


def score_classes(target: Tensor, prediction: Tensor, *, classes: int) -> Tensor:
    """Compute the Dice of each image and class, [n, classes], from integer maps [n, H, W]; see `score_dice`."""
    import torch

    return torch.stack([score_dice(target == number, prediction == number) for number in range(classes)], dim=1)


def score_regions(
    target: Tensor, prediction: Tensor, regions: Regions, *, rule: Hd95Rule = "largest"
) -> tuple[Tensor, Tensor]:
    """Compute Dice and HD95 of each image and region, both [n, regions], from integer maps [n, H, W]."""
    import torch

    if not regions:
        return torch.empty(len(target), 0), torch.empty(len(target), 0, dtype=torch.float64)
    masks = [(_union(target, members), _union(prediction, members)) for members in regions.values()]
    dice = torch.stack([score_dice(*pair) for pair in masks], dim=1)
    return dice, torch.stack([score_hd95(*pair, rule=rule) for pair in masks], dim=1)


def score_dice(target: Tensor, prediction: Tensor) -> Tensor:
    """Compute 2 |A and B| / (|A| + |B|) of each image, [n], from masks [n, H, W].

    Where both masks are empty there is no score (NaN); where one of them is, it is 0.

    >>> import torch
    >>> target = torch.tensor([[[True, True]], [[False, False]]])
    >>> score_dice(target, torch.tensor([[[True, False]], [[False, False]]]))
    tensor([0.6667,    nan])
    """
    target, prediction = target.flatten(1), prediction.flatten(1)
    return 2.0 * (target & prediction).sum(1) / (target.sum(1) + prediction.sum(1))


def score_hd95(target: Tensor, prediction: Tensor, *, rule: Hd95Rule = "largest") -> Tensor:
    """Compute the 95 % Hausdorff distance of each image in pixels, float64 [n], from masks [n, H, W].

    An edge pixel has one of its four neighbours outside the mask, or lies at the image's border. From each edge
    pixel of one mask the distance to the nearest of the other is taken. Under the rule `largest` the larger of
    both directions' 95th percentiles counts, as in MONAI's `compute_hausdorff_distance(percentile=95)`; under
    `pooled` the 95th percentile of both directions' distances together, as in MedPy's `hd95`. Where both masks are
    empty there is no score (NaN); where one of them is, it is the image's diagonal, which no pair of pixels can
    exceed.

    >>> import torch
    >>> score_hd95(torch.tensor([[[True, False, False]]]), torch.tensor([[[False, False, True]]]))
    tensor([2.], dtype=torch.float64)
    """
    import torch

    masks = zip(target.cpu().numpy(), prediction.cpu().numpy(), strict=True)
    return torch.tensor([_hd95(one, other, rule) for one, other in masks], dtype=torch.float64)


def _hd95(target: NDArray[np.bool_], prediction: NDArray[np.bool_], rule: Hd95Rule) -> float:
    one, other = _edge_pixels(target), _edge_pixels(prediction)
    if not len(one) and not len(other):
        return math.nan
    if not len(one) or not len(other):
        return math.hypot(*target.shape)
    directed = _distances(one, other), _distances(other, one)
    if rule == "pooled":
        return float(np.percentile(np.concatenate(directed), PERCENTILE))
    return max(float(np.percentile(distances, PERCENTILE)) for distances in directed)


def _distances(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each point [n, 2] to the nearest of the others, [n]."""
    from scipy.spatial import KDTree

    # Edges are few among an image's pixels: a tree of them takes a fifth of the time of a distance transform.
    distances: NDArray[np.float64] = KDTree(end, leafsize=32).query(start)[0]
    return distances


def _edge_pixels(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the positions of the edge pixels, [n, 2]."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.argwhere(mask & ~inner).astype(np.float64)


def _union(classes: Tensor, members: Sequence[int]) -> Tensor:
    import torch

    return torch.isin(classes, torch.tensor(members, device=classes.device))
