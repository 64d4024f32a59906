"""Dirichlet mathematics and the losses: pure functions of tensors."""

from feal.evidential.dirichlet import (
    aleatoric,
    concentration,
    epistemic,
    expected_probability,
    kl_to_uniform,
    uncertainties,
)
from feal.evidential.losses import EvidentialCrossEntropy, EvidentialDice
from feal.evidential.plain import BalancedCrossEntropy, PlainCrossEntropy, PlainDice
from feal.evidential.weights import inverse_weight, prior_weight

__all__ = [
    "BalancedCrossEntropy",
    "EvidentialCrossEntropy",
    "EvidentialDice",
    "PlainCrossEntropy",
    "PlainDice",
    "aleatoric",
    "concentration",
    "epistemic",
    "expected_probability",
    "inverse_weight",
    "kl_to_uniform",
    "prior_weight",
    "uncertainties",
]
