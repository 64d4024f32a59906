"""A site's labelled samples as its training sees them: targets and class counts, from its store alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.federation.store import Store
from feal.settings import Task


class Targets:
    """What is learned of a site's labelled samples, by their numbers in the order of sample ids.

    Masks are read anew for every batch: all of them may be more than the memory holds.
    """

    def __init__(self, store: Store, task: Task, labelled: Sequence[str]) -> None:
        self._store = store
        self._labelled = labelled
        self._classes = torch.from_numpy(store.class_labels()) if task == "classification" else None

    def of(self, batch: torch.Tensor) -> torch.Tensor:
        """Their classes [b], or masks uint8 [b, height, width]."""
        if self._classes is not None:
            return self._classes[batch]
        masks = [self._store.mask(self._labelled[number]) for number in batch.tolist()]
        return torch.from_numpy(np.stack(masks))


def class_counts(store: Store, task: Task, classes: int) -> torch.Tensor:
    """Labelled samples (or pixels) of each class, float64 [classes]."""
    if task == "classification":
        return _count(store.class_labels(), classes)
    total = torch.zeros(classes, dtype=torch.float64)
    for mask in store.masks():
        total += _count(mask, classes)
    return total


def _count(labels: NDArray[np.integer], classes: int) -> torch.Tensor:
    return torch.from_numpy(np.bincount(labels.ravel(), minlength=classes)).double()
