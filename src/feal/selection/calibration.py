"""Calibrated uncertainty: aleatoric uncertainty of both models, weighed by the global model's epistemic one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from feal.settings import Term

Calibration = Literal["minmax", "literal"]
TERMS: tuple[Term, ...] = get_args(Term)


def calibrated_uncertainty(
    ale_global: Tensor,
    ale_local: Tensor,
    epi_global: Tensor,
    calibration: Calibration = "minmax",
    *,
    terms: Sequence[Term] = TERMS,
) -> Tensor:
    """The score of each pool sample: (ale_global + ale_local) * f(epi_global), the paper's Eq. 5.

    f maps the epistemic uncertainty to [0, 1] over the pool ("minmax", as in the authors' code; a constant
    gives all ones) or leaves it as it is ("literal": it is negative and turns the order around). With fewer
    `terms` the sum has those present, and 1 stands for a factor without any.

    Shapes: three times [N], any float type; returns float64 [N].

    Raises ValueError for an unknown calibration or term, no terms, lengths that differ, and for NaN or
    infinity in a term that is used (naming the sample).

    >>> one, two = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 1.0])
    >>> calibrated_uncertainty(one, two, torch.tensor([-3.0, -5.0]))
    tensor([3., 0.], dtype=torch.float64)
    """
    columns: dict[Term, Tensor] = {
        "epistemic-global": epi_global,
        "aleatoric-global": ale_global,
        "aleatoric-local": ale_local,
    }
    _check(columns, calibration, terms)
    used = {term: _finite(term, columns[term]) for term in TERMS if term in terms}
    score = torch.ones(len(epi_global), dtype=torch.float64)
    if aleatoric := [used[term] for term in used if term != "epistemic-global"]:
        score = torch.stack(aleatoric).sum(0)
    if "epistemic-global" in used:
        epistemic = used["epistemic-global"]
        score = score * (_minmax(epistemic) if calibration == "minmax" else epistemic)
    return score


def _check(columns: dict[Term, Tensor], calibration: str, terms: Sequence[str]) -> None:
    if calibration not in get_args(Calibration):
        raise ValueError(f"The calibration is one of {', '.join(get_args(Calibration))}, not {calibration!r}.")
    if unknown := [term for term in terms if term not in TERMS]:
        raise ValueError(f"The terms are some of {', '.join(TERMS)}, not {unknown[0]!r}.")
    if not terms:
        raise ValueError("The calibrated uncertainty needs at least one term.")
    shapes = {name: list(column.shape) for name, column in columns.items()}
    if any(column.ndim != 1 for column in columns.values()) or len(set(map(tuple, shapes.values()))) > 1:
        described = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"The terms are one number a sample, of the same length, not {described}.")


def _finite(term: Term, values: Tensor) -> Tensor:
    """The values in float64; one sample that is not a number would spoil the scale of all."""
    if not (finite := values.isfinite()).all():
        raise ValueError(f"The {term} uncertainty of sample {int((~finite).nonzero()[0])} is NaN or infinite.")
    return values.detach().double()


def _minmax(values: Tensor) -> Tensor:
    if not values.numel():
        return values
    low, high = values.aminmax()
    return (values - low) / (high - low) if high > low else torch.ones_like(values)
