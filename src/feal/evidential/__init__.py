"""Dirichlet mathematics and the losses: pure functions of tensors."""

from feal.evidential.dirichlet import (
    aleatoric,
    concentration,
    epistemic,
    expected_probability,
    kl_to_uniform,
    uncertainties,
)
from feal.evidential.losses import (
    EvidentialCrossEntropy,
    EvidentialDice,
    EvidentialLoss,
    build_loss,
    evidential_reading,
)
from feal.losses import LOSSES

__all__ = [
    "LOSSES",
    "EvidentialCrossEntropy",
    "EvidentialDice",
    "EvidentialLoss",
    "aleatoric",
    "build_loss",
    "concentration",
    "epistemic",
    "evidential_reading",
    "expected_probability",
    "kl_to_uniform",
    "uncertainties",
]
