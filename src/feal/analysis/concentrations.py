"""How sure models are of what they predict: mean concentrations on three classes, by predicted class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feal.analysis.kept import reading
from feal.analysis.runs import Run
from feal.analysis.simplex import among
from feal.errors import FealError, unknown

Said = Sequence[tuple[Run, torch.Tensor]]
"""Runs, each with logits [n, C] of its global model."""


def mean_concentrations(
    columns: Mapping[str, Said], *, classes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """A row for every column and each of three classes: the mean concentration of the samples predicted so.

    The Dirichlet with the mean concentration is the normalised geometric mean of the samples' own. Of more than
    three classes it is the distribution of the three probabilities over their sum, see `simplex.among`.

    Args:
        columns: what is said, by the name of a column; one without any sample is left out.
        classes: names of three classes; those predicted most often over all columns where none are named.

    Returns:
        Rows with None as concentration where no sample is predicted so; none at all where there are fewer than
        three classes, or no samples.

    Raises:
        FealError: other than three different classes are named, or one that does not exist.
    """
    columns = {name: members for name, members in columns.items() if any(len(logits) for _, logits in members)}
    said = [one for members in columns.values() for one in members]
    logits = [values for _, values in said if len(values)]
    if not logits or logits[0].shape[1] < 3:
        return []
    names = said[0][0].classes
    corners = _named(names, classes) if classes is not None else _most_predicted(torch.cat(logits))
    return [
        {
            "column": column,
            "predicted": names[corner],
            **_classes(names, corners),
            **_mean(members, corner, corners),
        }
        for column, members in columns.items()
        for corner in corners
    ]


Three = tuple[int, int, int]


def _most_predicted(logits: torch.Tensor) -> Three:
    """Numbers of the classes that are predicted most often, in their order; of equal ones the first."""
    counts = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
    first, second, third = sorted(counts.argsort(descending=True, stable=True)[:3].tolist())
    return first, second, third


def _named(names: Sequence[str], classes: Sequence[str]) -> Three:
    for name in classes:
        if name not in names:
            raise unknown("class", name, names)
    if len(classes) != 3 or len(set(classes)) != 3:
        raise FealError(f"A triangle has three corners: name three different classes, not {', '.join(classes)}.")
    first, second, third = (list(names).index(name) for name in classes)
    return first, second, third


def _classes(names: Sequence[str], corners: Three) -> dict[str, str]:
    return {f"class_{letter}": names[corner] for letter, corner in zip("abc", corners, strict=True)}


def _mean(members: Said, corner: int, corners: Three) -> dict[str, Any]:
    own = np.concatenate([among(_predicted(run, logits, corner), corners) for run, logits in members])
    mean = own.mean(0).tolist() if len(own) else [None] * 3
    return {"samples": len(own), **{f"alpha_{letter}": value for letter, value in zip("abc", mean, strict=True)}}


def _predicted(run: Run, logits: torch.Tensor, corner: int) -> NDArray[np.float64]:
    """Concentrations [n, C] of the samples predicted as that class."""
    chosen = logits[logits.argmax(1) == corner].double()
    return reading(run).concentration(chosen).numpy()
