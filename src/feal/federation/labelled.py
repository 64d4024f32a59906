"""A site's labelled samples as its training sees them: targets and class counts, from its store alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from feal.federation.store import Store
from feal.settings import Task


def targets(store: Store, task: Task) -> torch.Tensor:
    """Class of each labelled sample [n], or its mask uint8 [n, height, width], in the order of sample ids."""
    if task == "classification":
        return torch.from_numpy(store.class_labels())
    return torch.from_numpy(np.stack(list(store.masks())))


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
