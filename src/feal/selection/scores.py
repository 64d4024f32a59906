"""Acquisition scores: how uncertain one prediction is, or how far two are apart.

Predictions have their classes along dimension 1 and are reduced to one number a sample or pixel.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from feal.losses import check_counts, weight_of

Term = Literal["epistemic-global", "aleatoric-global", "aleatoric-local"]
Calibration = Literal["minmax", "literal"]
TERMS: tuple[Term, ...] = get_args(Term)


def per_image(values: Tensor) -> Tensor:
    """Return one number an image: [batch] as it is, the mean over pixels of [batch, height, width]."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def entropy(probability: Tensor) -> Tensor:
    """Return the entropy of class probabilities, between 0 and log C.

    -sum_c p_c log p_c, with 0 log 0 = 0, computed in the type of p: in float32 the error stays below 1e-6.

    Shapes: probability [N, C, ...]; float64 [N, ...], to be averaged without further loss.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    each: Tensor = torch.special.entr(probability)
    return each.sum(1).double().clamp_(0.0, math.log(probability.shape[1]))


def margin_complement(probability: Tensor) -> Tensor:
    """Return how close the two most likely classes are: 1 for a tie, 0 for certainty.

    1 - (p_(1) - p_(2)) with the largest and the second largest p, computed in the type of p.

    Shapes: probability [N, C, ...] with C > 1; float64 [N, ...], to be averaged without further loss.

    >>> margin_complement(torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]))
    tensor([1.0000, 0.5000, 0.0000], dtype=torch.float64)
    """
    # Two comparisons a class: torch's own topk sorts along a dimension of few numbers, ten times as slow on maps.
    first, second = (
        torch.maximum(probability[:, 0], probability[:, 1]),
        torch.minimum(*probability[:, :2].unbind(1)),
    )
    for each in probability[:, 2:].unbind(1):
        second = torch.maximum(second, torch.minimum(first, each))
        first = torch.maximum(first, each)
    return (1 - first.double() + second.double()).clamp_(0.0, 1.0)


def half_squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """Return half the squared Euclidean distance; between 0 and 1 if both are probabilities.

    1/2 sum_c (p_c - q_c)^2, computed in the type of p and q.

    Shapes: twice [N, C, ...]; float64 [N, ...].

    >>> half_squared_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([1.], dtype=torch.float64)
    """
    return (first - second).square_().sum(1).double() / 2


def symmetric_divergence(first: Tensor, second: Tensor, counts: Tensor) -> Tensor:
    """Return the mean of both Kullback-Leibler divergences of two predictions under a class prior, at least 0.

    1/2 (KL(p || q) + KL(q || p)) with p = softmax(y + log n), q = softmax(z + log n) and n the counts, computed
    in float64. Classes with n_c = 0 are left out; where fewer than two are left, all predictions agree: 0.

    Shapes: first (y) and second (z) [N, C, ...], counts [C]; float64 [N, ...].
    Errors: ValueError for counts that are negative, not finite or not one a class.

    >>> z = torch.tensor([[1.0, 0.0, 5.0]])
    >>> symmetric_divergence(z, torch.zeros(1, 3), torch.tensor([2, 2, 0]))  # (p_1 - q_1) (1 - 0) / 2
    tensor([0.1155], dtype=torch.float64)
    """
    if not counts.any():
        return torch.zeros_like(first[:, 0], dtype=torch.float64)
    first, second = first.double(), second.double()
    prior = weight_of(first, check_counts(counts).log()).reshape(1, -1, *[1] * (first.ndim - 2))
    apart = torch.softmax(first + prior, 1).sub_(torch.softmax(second + prior, 1))
    # log p - log q is y - z and a number that all classes share; that and log n drop out, as p - q sums to 0.
    # So no logarithm of a probability that may be 0 is needed.
    return apart.mul_(first - second).sum(1).div_(2).clamp_(min=0.0)


def calibrated_uncertainty(
    ale_global: Tensor,
    ale_local: Tensor,
    epi_global: Tensor,
    calibration: Calibration = "minmax",
    *,
    terms: Sequence[Term] = TERMS,
) -> Tensor:
    """Return the score of each pool sample: (ale_global + ale_local) * f(epi_global), the paper's Eq. 5.

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
    used = {term: _require_finite(term, columns[term]) for term in TERMS if term in terms}
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
    shapes = {column.shape for column in columns.values()}
    if len(shapes) > 1 or len(shapes.pop()) != 1:
        described = ", ".join(f"{name} {list(column.shape)}" for name, column in columns.items())
        raise ValueError(f"The terms are one number a sample, of the same length, not {described}.")


def _require_finite(term: Term, values: Tensor) -> Tensor:
    """Return the values in float64; one that is not a number would spoil the scale of all."""
    if not (finite := values.isfinite()).all():
        raise ValueError(f"The {term} uncertainty of sample {int((~finite).nonzero()[0])} is NaN or infinite.")
    return values.detach().double()


def _minmax(values: Tensor) -> Tensor:
    if not values.numel():
        return values
    low, high = values.aminmax()
    return (values - low) / (high - low) if high > low else torch.ones_like(values)
