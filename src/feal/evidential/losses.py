"""The evidential losses of classification and segmentation."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from feal.evidential.dirichlet import concentration, expected_probability, kl_to_uniform
from feal.losses import (
    CLASS_WEIGHT,
    LOSSES,
    ClassWeight,
    Loss,
    Objective,
    class_index,
    class_weight,
    full_precision,
    soft_dice,
    weight_of,
)
from feal.plugins import read_params
from feal.settings import Component, Task


class EvidentialObjective(nn.Module, ABC):
    """A task loss on the Dirichlet plus lambda times the regulariser of the evidence.

    total = task + lambda * mean(min(1, step / annealing) KL(Dir(alpha~) || Dir(1)) - (C / S) z_y), where
    alpha~ = y + (1 - y) alpha takes the true class out and S carries no gradient. The second term, on the raw
    logit of the true class, is not annealed: it alone revives a sample without evidence.

    Called `(logits, target, step)`; `step` counts from 0. `annealing` None or 0 means the full divergence always.
    A subclass gives `task`.

    Shapes: logits [N, C] or [N, C, H, W]; target [N] or [N, H, W], or with a class dimension of 1. A scalar of
    the logits' dtype, float32 for half precision.
    Raises ValueError for a negative lambda, annealing or step, an unknown activation, a target out of range.
    """

    def __init__(self, lambda_: float, annealing: float | None, *, activation: str, squared: bool) -> None:
        super().__init__()
        _check_not_negative("lambda", lambda_)
        _check_not_negative("annealing", annealing or 0)
        concentration(torch.zeros(1, 1), activation)  # an unknown name is an error here, not at the first batch
        self.lambda_, self.annealing = lambda_, annealing
        self.activation, self.squared = activation, squared

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        _check_not_negative("step", step)
        logits = full_precision(logits)
        index = class_index(logits, target)
        alpha = concentration(logits, self.activation, self.squared)
        task = self.task(alpha, index)
        misleading = self.divergence(alpha.scatter(1, index, 1.0))
        strength = alpha.detach().sum(1)
        correct = logits.gather(1, index).squeeze(1) * (alpha.shape[1] / strength)
        factor = min(1.0, step / self.annealing) if self.annealing else 1.0
        return task + self.lambda_ * (factor * misleading - correct).mean()

    @abstractmethod
    def task(self, alpha: Tensor, index: Tensor) -> Tensor:
        """Compute the loss of the task from the concentration [N, C, ...] and the true classes [N, 1, ...]."""

    def divergence(self, alpha: Tensor) -> Tensor:
        """Compute KL(Dir(alpha) || Dir(1)) [N, ...] in alpha's dtype."""
        return kl_to_uniform(alpha, dtype=alpha.dtype)


class EvidentialCrossEntropy(EvidentialObjective):
    """The expected cross entropy under the Dirichlet, regularised as in `EvidentialObjective`.

    task = mean of w_y (psi(S) - psi(alpha_y)); the class weight does not touch the regulariser.

    Shapes: as `EvidentialObjective`; class_weight [C] or None for 1, ValueError for another length.

    >>> loss = EvidentialCrossEntropy(0.0, None)
    >>> loss(torch.tensor([[-1.0, 1.0]]), torch.tensor([1]), 0)
    tensor(0.5000)
    """

    def __init__(
        self,
        lambda_: float,
        annealing: float | None,
        class_weight: Tensor | None = None,
        *,
        activation: str = "relu",
        squared: bool = False,
    ) -> None:
        super().__init__(lambda_, annealing, activation=activation, squared=squared)
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", class_weight)

    def task(self, alpha: Tensor, index: Tensor) -> Tensor:
        own = alpha.gather(1, index)
        surprise = torch.digamma(alpha.sum(1, keepdim=True)) - torch.digamma(own)
        if self.class_weight is not None:
            surprise = surprise * weight_of(alpha, self.class_weight)[index]
        return surprise.mean()

    def divergence(self, alpha: Tensor) -> Tensor:
        """Compute it as published, term by term: float32 gradients, with their rounding, are the authors'.

        On single samples the price, three times that of `kl_to_uniform`, does not matter.
        """
        total = alpha.sum(1, keepdim=True)
        volume = torch.lgamma(total).squeeze(1) - math.lgamma(alpha.shape[1]) - torch.lgamma(alpha).sum(1)
        slope = (alpha - 1.0) * (torch.digamma(alpha) - torch.digamma(total))
        return volume + slope.sum(1)


class EvidentialDice(EvidentialObjective):
    """The soft Dice loss of the expected probability with its variance, regularised as in `EvidentialObjective`.

    task = 1 - (1/C) sum_c (2 |y_c p_c| + e) / (|y_c^2| + |p_c^2| + |p_c (1 - p_c) / (S + 1)| + e), p = alpha / S,
    sums over all pixels of the batch, e = 1e-5. Shapes and errors: as `EvidentialObjective`.

    >>> loss = EvidentialDice(0.0, 10)
    >>> loss(torch.zeros(1, 2, 1, 2), torch.tensor([[[0, 1]]]), 0)
    tensor(0.4000)
    """

    def __init__(
        self, lambda_: float, annealing: float | None, squared: bool = True, *, activation: str = "relu"
    ) -> None:
        super().__init__(lambda_, annealing, activation=activation, squared=squared)

    def task(self, alpha: Tensor, index: Tensor) -> Tensor:
        strength = alpha.sum(1, keepdim=True)
        probability = alpha / strength
        variance = probability * (1.0 - probability) / (strength + 1.0)
        return soft_dice(probability, index, variance)


def _check_not_negative(name: str, value: float) -> None:
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


@LOSSES.register("evidential", summary="expected cross entropy or Dice of a Dirichlet, with regularised evidence")
class EvidentialLoss(Loss):
    """`EvidentialCrossEntropy` in classification, `EvidentialDice` in segmentation."""

    class Params(Loss.Params):
        """Evidence, its regulariser and class weights."""

        lambda_: float = Field(1e-2, ge=0, alias="lambda", description="weight of the evidence regulariser")
        activation: Literal["relu", "softplus", "exp"] = Field("relu", description="logits to evidence")
        annealing: Annotated[int, Field(ge=1)] | Literal["none"] = Field(
            10, description="communication rounds over which the regulariser's KL term grows to full weight"
        )
        squared: bool | None = Field(
            None, description="square the concentration; by default for segmentation only"
        )
        class_weight: ClassWeight = Field("prior", description=CLASS_WEIGHT)

    params: Params

    def objective(self, task: Task, counts: Tensor) -> Objective:
        params, squared = self.params, self.is_squared(task)
        annealing = None if params.annealing == "none" else params.annealing
        if task == "segmentation":
            return EvidentialDice(params.lambda_, annealing, squared, activation=params.activation)
        weight = class_weight(params.class_weight, counts)
        return EvidentialCrossEntropy(
            params.lambda_, annealing, weight, activation=params.activation, squared=squared
        )

    def concentration(self, logits: Tensor, *, task: Task) -> Tensor:
        """Return the Dirichlet parameters of logits [N, C, ...], as in the objective of that task."""
        return concentration(logits, self.params.activation, squared=self.is_squared(task))

    def probability(self, logits: Tensor, *, task: Task) -> Tensor:
        """Return the expected probability alpha / S."""
        return expected_probability(self.concentration(logits, task=task))

    def is_squared(self, task: Task) -> bool:
        """Return whether the concentration is squared: by default for segmentation only."""
        return task == "segmentation" if self.params.squared is None else self.params.squared


def evidential_reading(loss: Loss) -> EvidentialLoss:
    """Return the loss itself if it is evidential, or else the default one, to read a Dirichlet from any logits."""
    return loss if isinstance(loss, EvidentialLoss) else EvidentialLoss()


def build_loss(loss: Component | None) -> Loss:
    """Return the loss that a configuration names, with its parameters; the plain one if it names none.

    Raises:
        FealError: there is no such loss or parameter, or a value is not valid.

    >>> build_loss(Component(name="plain", class_weight="none")).params.class_weight
    'none'
    """
    loss = loss or Component(name="plain")
    owner = LOSSES.get(loss.name)
    return owner(read_params(owner, loss.params, section="loss", name=loss.name))
