"""One number for how unsure one prediction is, or how far two are apart.

Each takes the classes along dimension 1, leaves one number a sample or pixel, and has no state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from feal.evidential.weights import checked_counts, weight_of


def entropy(probability: Tensor) -> Tensor:
    """The entropy of class probabilities, between 0 and log C.

    -sum_c p_c log p_c, with 0 log 0 = 0, computed in the type of p: in float32 the error stays below 1e-6.

    Shapes: probability [N, C, ...]; float64 [N, ...], to be averaged without further loss.

    >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.6931, 0.0000], dtype=torch.float64)
    """
    each: Tensor = torch.special.entr(probability)
    return each.sum(1).double().clamp_(0.0, math.log(probability.shape[1]))


def half_squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """Half the squared Euclidean distance; between 0 and 1 if both are probabilities.

    1/2 sum_c (p_c - q_c)^2, computed in the type of p and q.

    Shapes: twice [N, C, ...]; float64 [N, ...].

    >>> half_squared_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([1.], dtype=torch.float64)
    """
    return (first - second).square_().sum(1).double() / 2


def symmetric_divergence(first: Tensor, second: Tensor, counts: Tensor) -> Tensor:
    """The mean of both Kullback-Leibler divergences between two predictions under a class prior, at least 0.

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
    prior = weight_of(first, checked_counts(counts).log()).reshape(1, -1, *[1] * (first.ndim - 2))
    apart = torch.softmax(first + prior, 1).sub_(torch.softmax(second + prior, 1))
    # log p - log q is y - z and a number that all classes share; that and log n drop out, as p - q sums to 0.
    # So no logarithm of a probability that may be 0 is needed.
    return apart.mul_(first - second).sum(1).div_(2).clamp_(min=0.0)
