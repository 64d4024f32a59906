"""From logits to a Dirichlet distribution, and its uncertainties."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from feal.evidential.blockwise import reduce_classes
from feal.evidential.special import (
    HALF_LOG_2_PI_E,
    REMAINDER_SCALE,
    entropy_remainder,
    twice_digamma_next,
)

__all__ = [
    "ACTIVATIONS",
    "aleatoric",
    "concentration",
    "epistemic",
    "expected_probability",
    "kl_to_uniform",
    "uncertainties",
]

# exp is clamped: beyond e^10 evidence says nothing more, and without a limit it would overflow.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "exp": lambda logits: logits.clamp(-10.0, 10.0).exp(),
}


def concentration(logits: Tensor, activation: str = "relu", squared: bool = False, dim: int = 1) -> Tensor:
    """The Dirichlet's concentration behind logits.

    alpha = A(z) + 1, or (A(z) + 1)^2 when `squared`; A = relu, softplus or exp (the logit clamped to +-10).

    Shapes: logits [..., C, ...] with C at `dim`; alpha has the same shape and dtype and carries the gradient.
    The map is elementwise: `dim` is taken for symmetry with the functions below and only has to exist.
    Errors: ValueError for an unknown activation, IndexError when there is no dimension `dim`.

    >>> concentration(torch.tensor([[-1.0, 2.0]]))
    tensor([[1., 3.]])
    >>> concentration(torch.tensor([[-1.0, 2.0]]), squared=True)
    tensor([[1., 9.]])
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}: known are {', '.join(ACTIVATIONS)}")
    logits.size(dim)
    evidence = ACTIVATIONS[activation](logits)
    if evidence.requires_grad:  # autograd keeps the intermediate results
        alpha = evidence + 1
        return alpha.square() if squared else alpha
    alpha = evidence.add_(1)
    return alpha.square_() if squared else alpha


def expected_probability(alpha: Tensor, dim: int = 1) -> Tensor:
    """The mean of the Dirichlet, alpha / S with S = sum_c alpha_c.

    Shapes: alpha [..., C, ...] with C at `dim`; the result has the same shape and dtype.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> expected_probability(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2500, 0.7500]])
    """
    return alpha / alpha.sum(dim, keepdim=True)


def aleatoric(alpha: Tensor, dim: int = 1) -> Tensor:
    """The expected entropy of the class under the Dirichlet, between 0 and log C.

    sum_c alpha_c / S (psi(S + 1) - psi(alpha_c + 1)), computed in float64.

    Shapes: alpha [..., C, ...] with C at `dim`, any float dtype, above 0; the result is float64 without that
    dimension. Differentiable.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> aleatoric(torch.tensor([[1.0, 1.0], [101.0, 1.0]]))
    tensor([0.5000, 0.0510], dtype=torch.float64)
    """
    if _needs_gradient(alpha):
        return _plain_aleatoric(alpha.double(), dim)
    kernel = _aleatoric_kernel if _fits(alpha) else _plain_aleatoric_kernel
    return reduce_classes(kernel, alpha, dim, torch.float64)[0]


def epistemic(alpha: Tensor, dim: int = 1) -> Tensor:
    """The differential entropy of the Dirichlet, at most -lnGamma(C) and unbounded below.

    sum_c lnGamma(alpha_c) - lnGamma(S) - sum_c (alpha_c - 1)(psi(alpha_c) - psi(S)), computed in float64 and
    rearranged so that it does not cancel at large evidence.

    Shapes: alpha [..., C, ...] with C at `dim`, any float dtype, above 0; the result is float64 without that
    dimension. Differentiable.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> epistemic(torch.ones(1, 8))
    tensor([-8.5252], dtype=torch.float64)
    """
    return _entropy(alpha, dim, torch.float64)


def kl_to_uniform(alpha: Tensor, dim: int = 1, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """The divergence KL(Dir(alpha) || Dir(1)) from the uniform Dirichlet, at least 0.

    lnGamma(S) - lnGamma(C) - sum_c lnGamma(alpha_c) + sum_c (alpha_c - 1)(psi(alpha_c) - psi(S)), which is
    -lnGamma(C) less the entropy. It is computed in `dtype`: float64 for scores, the losses stay in float32.

    Shapes: alpha [..., C, ...] with C at `dim`, any float dtype, above 0; the result is in `dtype` without that
    dimension. Differentiable.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> kl_to_uniform(torch.tensor([[1.0, 1.0], [10.0, 1.0]]))
    tensor([0.0000, 1.4026], dtype=torch.float64)
    """
    return (0.0 - math.lgamma(alpha.shape[dim])) - _entropy(alpha, dim, dtype)


def uncertainties(alpha: Tensor, dim: int = 1) -> tuple[Tensor, Tensor]:
    """`aleatoric` and `epistemic` of the same concentration, for little more than the price of one.

    Shapes and errors: as there.

    >>> uncertainties(torch.ones(1, 2))
    (tensor([0.5000], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    if _needs_gradient(alpha) or not _fits(alpha):
        return aleatoric(alpha, dim), epistemic(alpha, dim)
    first, second = reduce_classes(_both_kernel, alpha, dim, torch.float64, results=2)
    return first, second


def _needs_gradient(alpha: Tensor) -> bool:
    return torch.is_grad_enabled() and alpha.requires_grad


def _fits(alpha: Tensor) -> bool:
    """Whether the fits of `special` hold; a NaN passes and stays a NaN."""
    return alpha.numel() == 0 or not bool(alpha.detach().amin() < 1)


# The kernels: see blockwise.Kernel.


def _aleatoric_kernel(block: Tensor, *results: Tensor) -> None:
    _write_aleatoric(block, twice_digamma_next(block), results[0])


def _entropy_kernel(block: Tensor, *results: Tensor) -> None:
    _write_entropy(block, twice_digamma_next(block), results[0])


def _both_kernel(block: Tensor, *results: Tensor) -> None:
    digamma = twice_digamma_next(block)
    _write_entropy(block, digamma, results[1])
    _write_aleatoric(block, digamma, results[0])


def _write_aleatoric(block: Tensor, digamma: Tensor, result: Tensor) -> None:
    """`digamma` is 2 psi(block + 1), and is used up."""
    weighted = digamma[:-1].mul_(block[:-1])
    expected = _sum_rows(weighted)
    twice = digamma[-1].addcdiv_(expected, block[-1], value=-1)
    torch.clamp(twice.mul_(0.5), 0.0, math.log(len(weighted)), out=result)


def _write_entropy(block: Tensor, digamma: Tensor, result: Tensor) -> None:
    """`digamma` is 2 psi(block + 1).

    With F(x) = lnGamma(x) - (x - 1) psi(x) + x = psi(x + 1) / 2 + R(x) + ln(2 pi e) / 2 the entropy is
    sum_c F(alpha_c) - F(S) - (C - 1) psi(S), where psi(S) = psi(S + 1) - 1 / S. The large numbers that would
    cancel, sum_c alpha_c - S, are gone.
    """
    others = len(block) - 2
    remainder = entropy_remainder(block)
    entropy = _sum_rows(remainder[:-1]).sub_(remainder[-1]).mul_(REMAINDER_SCALE)
    for row in digamma[:-1]:
        entropy.add_(row, alpha=0.25)
    entropy.sub_(digamma[-1], alpha=0.25 + 0.5 * others)
    entropy.add_(torch.reciprocal(block[-1], out=remainder[-1]), alpha=others)
    torch.clamp(entropy.add_(others * HALF_LOG_2_PI_E), max=0.0 - math.lgamma(others + 1), out=result)


def _sum_rows(rows: Tensor) -> Tensor:
    """The sum over the first dimension, in the place of the first row: faster than torch.sum over so few."""
    total = rows[0]
    for row in rows[1:]:
        total += row
    return total


# Concentrations below 1 do not come from evidence, but the formulas hold for them: torch's own functions.


def _plain_aleatoric(alpha: Tensor, dim: int) -> Tensor:
    total = alpha.sum(dim, keepdim=True)
    return (alpha / total * (torch.digamma(total + 1) - torch.digamma(alpha + 1))).sum(dim)


def _plain_aleatoric_kernel(block: Tensor, *results: Tensor) -> None:
    results[0].copy_(_plain_aleatoric(block[:-1], 0))


def _plain_entropy_kernel(block: Tensor, *results: Tensor) -> None:
    alpha, total = block[:-1], block[-1]
    slope = (alpha - 1) * (torch.digamma(alpha) - torch.digamma(total))
    results[0].copy_((torch.lgamma(alpha) - slope).sum(0) - torch.lgamma(total))


def _entropy(alpha: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    result: Tensor = _Entropy.apply(alpha, dim, dtype)  # type: ignore[no-untyped-call]
    return result


class _Entropy(torch.autograd.Function):
    """The entropy with its short gradient: -(alpha_c - 1) psi'(alpha_c) + (S - C) psi'(S)."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(alpha)
        ctx.dim = dim
        kernel = _entropy_kernel if _fits(alpha) else _plain_entropy_kernel
        return reduce_classes(kernel, alpha, dim, dtype)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (saved,) = ctx.saved_tensors
        # Two numbers near 1 are subtracted at large evidence, which float32 would not survive.
        alpha = saved.double()
        total = alpha.sum(ctx.dim, keepdim=True)
        own = (alpha - 1) * torch.polygamma(1, alpha)
        shared = (total - alpha.size(ctx.dim)) * torch.polygamma(1, total)
        return ((shared - own) * gradients[0].unsqueeze(ctx.dim)).to(saved.dtype), None, None
