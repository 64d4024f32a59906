"""The two special functions behind the Dirichlet's uncertainties, for arguments of at least 1.

torch's float64 digamma and lgamma take 11 to 23 ns a number on a CPU, ten of them a pixel, which a small U-Net
does not hide; and differences of lgamma cancel at large evidence. Both functions here are a rational fit in
elementary operations, and nothing cancels. The coefficients are minimax fits (least squares with Lawson's
weights) to mpmath's values on [1, 1e9], right in the limit; tests/evidential/test_special.py measures them.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

__all__ = ["HALF_LOG_2_PI_E", "REMAINDER_SCALE", "entropy_remainder", "twice_digamma_next"]

HALF_LOG_2_PI_E = 0.5 * math.log(2.0 * math.pi * math.e)

# exp(2 psi(x + 1)) = z + SCALE * numerator(z) / denominator(z), with z = (x + 1/2)^2 + OFFSET: the half step
# makes the series even, so that two poles are enough for 6e-10.
_DIGAMMA_OFFSET = 0.08333317510854628
_DIGAMMA_SCALE = -0.011103934721891324
_DIGAMMA_NUMERATOR = (0.9655142767194452,)
_DIGAMMA_DENOMINATOR = (1.463338163645989, 0.2279295724096029)

# R(x) = REMAINDER_SCALE * numerator(x) / denominator(x), to 9e-10.
REMAINDER_SCALE = -0.5833332194743618
_REMAINDER_NUMERATOR = (0.7696802334308315, 0.6885490104173191, 0.07762848647916441)
_REMAINDER_DENOMINATOR = (0.6982434339432171, 0.6197406203560301, 0.026427267693629068, 0.0023727616641202602)


def twice_digamma_next(x: Tensor) -> Tensor:
    """Twice the digamma function one step up, 2 psi(x + 1), for x >= 1.

    The factor 2 stays because it is free for the caller. Absolute error of psi: 6e-10, plus rounding.

    Shapes: any, float32 or float64; the result is a new tensor of the same shape and dtype.
    Errors: none; the fit is wrong below 1.

    >>> x = torch.tensor([1.0, 10.0], dtype=torch.float64)
    >>> bool(torch.allclose(twice_digamma_next(x), 2 * torch.digamma(x + 1), rtol=0, atol=2e-9))
    True
    """
    half = x + 0.5
    (offset,) = _constants((_DIGAMMA_OFFSET,), x.dtype, x.device)
    z = torch.addcmul(offset, half, half, out=half)
    numerator, denominator = _polynomials(z, _DIGAMMA_NUMERATOR, _DIGAMMA_DENOMINATOR)
    return z.addcdiv_(numerator, denominator, value=_DIGAMMA_SCALE).log_()


def entropy_remainder(x: Tensor) -> Tensor:
    """What is left of the entropy's term of one concentration without its logarithm, for x >= 1.

    R(x) / REMAINDER_SCALE with R(x) = lnGamma(x) - (x - 1) psi(x) + x - psi(x + 1) / 2 - ln(2 pi e) / 2, which
    falls to 0 like -7 / (12 x): no large numbers, so nothing cancels. Absolute error of R: 9e-10, plus rounding.
    The scale is left to the caller, who can apply it to a sum.

    Shapes: any, float32 or float64; the result is a new tensor of the same shape and dtype.
    Errors: none; the fit is wrong below 1.

    >>> round(REMAINDER_SCALE * float(entropy_remainder(torch.ones((), dtype=torch.float64))), 6)
    -0.630331
    """
    numerator, denominator = _polynomials(x, _REMAINDER_NUMERATOR, _REMAINDER_DENOMINATOR)
    return numerator.div_(denominator)


def _polynomials(x: Tensor, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Two monic polynomials, coefficients from the second highest power down, to be divided."""
    if x.dtype != torch.float64:
        # Powers overflow early in float32; past this bound the quotient is below its rounding.
        x = x.clamp(max=torch.finfo(x.dtype).max ** (1.0 / (len(denominator) + 1)))
    return _monic(x, numerator), _monic(x, denominator)


def _monic(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    first, *rest = coefficients
    value = x + first
    for constant in _constants(tuple(rest), x.dtype, x.device):
        torch.addcmul(constant, value, x, out=value)
    return value


@cache
def _constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Numbers as tensors, made once: making them anew for every block costs as much as an operation on it."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device).unbind()
