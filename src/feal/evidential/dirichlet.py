"""Dirichlet distributions from logits, and their uncertainties.

torch's float64 digamma and lgamma take 11 to 23 ns a number on a CPU, ten of them a pixel, and differences of
lgamma cancel at large evidence. From concentration 1 on, two rational fits replace them (minimax, by mpmath).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "exp": lambda logits: logits.clamp(-10.0, 10.0).exp(),  # without a limit it would overflow
}
# Numbers at a time: smaller blocks pay for the calls, larger ones leave a processor's cache.
_BLOCK, _BLOCK_ON_ACCELERATOR = 3 << 14, 1 << 24
_HALF_LOG_2_PI_E = 0.5 * math.log(2.0 * math.pi * math.e)
_REMAINDER_SCALE = -0.5833332194743618


def concentration(logits: Tensor, activation: str = "relu", squared: bool = False, dim: int = 1) -> Tensor:
    """Return alpha = A(z) + 1, or (A(z) + 1)^2 when `squared`; A = relu, softplus or exp (z clamped to +-10).

    Shapes: logits [..., C, ...] with C at `dim`; alpha has the same shape and dtype and carries the gradient.
    Errors: ValueError for an unknown activation, IndexError when there is no dimension `dim`.

    >>> concentration(torch.tensor([[-1.0, 2.0]]), squared=True)
    tensor([[1., 9.]])
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}: known are {', '.join(ACTIVATIONS)}")
    logits.size(dim)
    evidence = ACTIVATIONS[activation](logits)
    alpha = evidence + 1 if evidence.requires_grad else evidence.add_(1)  # autograd keeps intermediate results
    return alpha.square() if squared else alpha


def expected_probability(alpha: Tensor, dim: int = 1) -> Tensor:
    """Return the mean of the Dirichlet, alpha / S with S = sum_c alpha_c, in alpha's shape and dtype.

    >>> expected_probability(torch.tensor([[1.0, 3.0]]))
    tensor([[0.2500, 0.7500]])
    """
    return alpha / alpha.sum(dim, keepdim=True)


def aleatoric(alpha: Tensor, dim: int = 1) -> Tensor:
    """Return the expected entropy of the class, sum_c alpha_c / S (psi(S + 1) - psi(alpha_c + 1)), in [0, log C].

    Shapes: alpha [..., C, ...] with C at `dim`, any float dtype, above 0; the result is float64 without that
    dimension. Differentiable.

    >>> aleatoric(torch.tensor([[1.0, 1.0], [101.0, 1.0]]))
    tensor([0.5000, 0.0510], dtype=torch.float64)
    """
    if _can_fit(alpha):
        return _reduce_classes(alpha, dim, torch.float64, has_entropy=False)[0]
    alpha, total = alpha.double(), alpha.double().sum(dim, keepdim=True)
    return (alpha / total * (torch.digamma(total + 1) - torch.digamma(alpha + 1))).sum(dim)


def epistemic(alpha: Tensor, dim: int = 1, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the differential entropy of the Dirichlet, at most -lnGamma(C) and unbounded below.

    sum_c lnGamma(alpha_c) - lnGamma(S) - sum_c (alpha_c - 1)(psi(alpha_c) - psi(S)), rearranged so that it does
    not cancel at large evidence, in `dtype`. Shapes: as `aleatoric`. Differentiable.

    >>> epistemic(torch.ones(1, 8))
    tensor([-8.5252], dtype=torch.float64)
    """
    entropy: Tensor = _Entropy.apply(alpha, dim, dtype)  # type: ignore[no-untyped-call]
    return entropy


def uncertainties(alpha: Tensor, dim: int = 1) -> tuple[Tensor, Tensor]:
    """Return `aleatoric` and `epistemic` of the same concentration, at little more than the price of one.

    >>> uncertainties(torch.ones(1, 2))
    (tensor([0.5000], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    if not _can_fit(alpha):
        return aleatoric(alpha, dim), epistemic(alpha, dim)
    spread, entropy = _reduce_classes(alpha, dim, torch.float64)
    return spread, entropy


def kl_to_uniform(alpha: Tensor, dim: int = 1, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return KL(Dir(alpha) || Dir(1)), at least 0: the negative entropy less lnGamma(C).

    In `dtype`: float64 for scores, the losses stay in float32. Shapes: as `aleatoric`. Differentiable.

    >>> kl_to_uniform(torch.tensor([[1.0, 1.0], [10.0, 1.0]]))
    tensor([0.0000, 1.4026], dtype=torch.float64)
    """
    return (0.0 - math.lgamma(alpha.shape[dim])) - epistemic(alpha, dim, dtype=dtype)


class _Entropy(torch.autograd.Function):
    """The entropy with its short gradient: -(alpha_c - 1) psi'(alpha_c) + (S - C) psi'(S)."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(alpha)
        ctx.dim = dim
        if _can_fit(alpha):
            return _reduce_classes(alpha, dim, dtype)[1]
        alpha, total = alpha.to(dtype), alpha.to(dtype).sum(dim, keepdim=True)
        slope = (alpha - 1) * (torch.digamma(alpha) - torch.digamma(total))
        return (torch.lgamma(alpha) - slope).sum(dim) - torch.lgamma(total).squeeze(dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        # Two numbers near 1 are subtracted at large evidence, which float32 would not survive.
        (saved,) = ctx.saved_tensors
        alpha, total = saved.double(), saved.double().sum(ctx.dim, keepdim=True)
        own = (alpha - 1) * torch.polygamma(1, alpha)
        shared = (total - alpha.size(ctx.dim)) * torch.polygamma(1, total)
        return ((shared - own) * gradients[0].unsqueeze(ctx.dim)).to(saved.dtype), None, None


def _can_fit(alpha: Tensor) -> bool:
    """Return whether no gradient is needed and alpha is in the fits' range, from 1; a NaN passes and stays."""
    is_free = not (torch.is_grad_enabled() and alpha.requires_grad)
    return is_free and (alpha.numel() == 0 or not bool(alpha.amin() < 1))


def _reduce_classes(alpha: Tensor, dim: int, dtype: torch.dtype, *, has_entropy: bool = True) -> Tensor:
    """Compute aleatoric uncertainty and entropy [2, ...] block by block, without a copy of alpha in `dtype`."""
    shape, classes, dim = alpha.shape, alpha.shape[dim], dim % alpha.ndim
    source = alpha.detach().reshape(math.prod(shape[:dim]), classes, math.prod(shape[dim + 1 :]))
    target = source.new_empty((2, len(source), source.shape[2]), dtype=dtype)
    size = (_BLOCK if alpha.device.type == "cpu" else _BLOCK_ON_ACCELERATOR) // (classes + 1)
    width = max(1, min(source.shape[2], size))
    height = max(1, size // width)
    for rows, row_results in zip(source.split(height), target.split(height, 1), strict=True):
        for part, (spread, entropy) in zip(rows.split(width, 2), row_results.split(width, 2), strict=True):
            block = part.new_empty((classes + 1, len(part), part.shape[2]), dtype=dtype)
            block[:-1] = part.transpose(0, 1)
            block[-1] = sum(block[1:-1], start=block[0])  # faster than torch.sum over so few rows
            digamma = _twice_digamma_next(block)
            if has_entropy:
                _write_entropy(block, digamma, entropy)
            weighted = digamma[:-1].mul_(block[:-1])
            twice = digamma[-1].addcdiv_(sum(weighted[1:], start=weighted[0]), block[-1], value=-1)
            torch.clamp(twice.mul_(0.5), 0.0, math.log(classes), out=spread)
    return target.reshape(2, *shape[:dim], *shape[dim + 1 :])


def _write_entropy(block: Tensor, digamma: Tensor, result: Tensor) -> None:
    """Write the entropy of a block, concentrations followed by their sum [C + 1, ...], given 2 psi(block + 1).

    With F(x) = lnGamma(x) - (x - 1) psi(x) + x = psi(x + 1) / 2 + R(x) + ln(2 pi e) / 2 it is sum_c F(alpha_c) -
    F(S) - (C - 1) psi(S), where psi(S) = psi(S + 1) - 1 / S: what would cancel, sum_c alpha_c - S, is gone.
    """
    others = len(block) - 2
    remainder = _entropy_remainder(block)
    entropy = sum(remainder[1:-1], start=remainder[0]).sub_(remainder[-1]).mul_(_REMAINDER_SCALE)
    for row in digamma[:-1]:
        entropy.add_(row, alpha=0.25)
    entropy.sub_(digamma[-1], alpha=0.25 + 0.5 * others)
    entropy.add_(torch.reciprocal(block[-1], out=remainder[-1]), alpha=others)
    torch.clamp(entropy.add_(others * _HALF_LOG_2_PI_E), max=0.0 - math.lgamma(others + 1), out=result)


def _twice_digamma_next(x: Tensor) -> Tensor:
    """Return 2 psi(x + 1) for x >= 1, psi to 6e-10: a fit of exp(2 psi(x + 1)), which is even in x + 1/2."""
    half = x + 0.5
    z = torch.addcmul(_constant(0.08333317510854628, x.dtype, x.device), half, half, out=half)
    numerator, denominator = z + 0.9655142767194452, _evaluate_monic(z, 1.463338163645989, 0.2279295724096029)
    return z.addcdiv_(numerator, denominator, value=-0.011103934721891324).log_()


def _entropy_remainder(x: Tensor) -> Tensor:
    """Return R(x) / SCALE for x >= 1, R to 9e-10; it falls like 1 / x, so nothing cancels."""
    x = x if x.dtype == torch.float64 else x.clamp(max=5e7)  # powers overflow, and R is below rounding there
    numerator = _evaluate_monic(x, 0.7696802334308315, 0.6885490104173191, 0.07762848647916441)
    poles = (0.6982434339432171, 0.6197406203560301, 0.026427267693629068, 0.0023727616641202602)
    return numerator.div_(_evaluate_monic(x, *poles))


def _evaluate_monic(x: Tensor, first: float, *rest: float) -> Tensor:
    """Evaluate a polynomial given by its coefficients from the second highest power down."""
    value = x + first
    for coefficient in rest:
        torch.addcmul(_constant(coefficient, x.dtype, x.device), value, x, out=value)
    return value


@cache
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # made for every block it would cost as much as an operation on the block
        return torch.tensor(value, dtype=dtype, device=device)
