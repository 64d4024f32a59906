"""Calibrated uncertainty: the paper's Eq. 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from feal.settings import Term

TERMS: tuple[Term, ...] = ("epistemic-global", "aleatoric-global", "aleatoric-local")


def calibrated_uncertainty(
    ale_global: torch.Tensor,
    ale_local: torch.Tensor,
    epi_global: torch.Tensor,
    calibration: Literal["minmax", "literal"] = "minmax",
    *,
    terms: Sequence[Term] = TERMS,
) -> torch.Tensor:
    """Aleatoric uncertainty of both models times the global model's epistemic uncertainty: (a_g + a_l) * f(e_g)."""
    factor = _minmax(epi_global.double()) if calibration == "minmax" else epi_global.double()
    return (ale_global.double() + ale_local.double()) * factor


def _minmax(values: torch.Tensor) -> torch.Tensor:
    low, high = values.aminmax()
    return (values - low) / (high - low) if high > low else torch.ones_like(values)
