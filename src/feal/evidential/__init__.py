"""Dirichlet mathematics and the losses: pure functions of tensors."""

from feal.evidential.dirichlet import aleatoric as aleatoric
from feal.evidential.dirichlet import concentration as concentration
from feal.evidential.dirichlet import epistemic as epistemic
from feal.evidential.dirichlet import expected_probability as expected_probability
from feal.evidential.dirichlet import kl_to_uniform as kl_to_uniform
from feal.evidential.dirichlet import uncertainties as uncertainties
from feal.evidential.losses import EvidentialCrossEntropy as EvidentialCrossEntropy
from feal.evidential.losses import EvidentialDice as EvidentialDice
from feal.evidential.losses import EvidentialLoss as EvidentialLoss
from feal.evidential.losses import build_loss as build_loss
from feal.evidential.losses import evidential_reading as evidential_reading
from feal.losses import LOSSES as LOSSES
