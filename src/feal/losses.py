"""Define what networks are trained by: cross entropy, balanced softmax and Dice, with class weights.

A configuration names a `Loss` with its parameters; the loss makes the objective of a site for its task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from feal.registry import Configurable, Registry
from feal.settings import ClassCountScope, Task

Objective = Callable[[Tensor, Tensor, int], Tensor]
"""`(logits, target, communication round) -> scalar`."""
ClassWeight = Literal["none", "prior", "inverse"]
CLASS_WEIGHT = "class weights in classification: 1, 2 - class prior, or inverse class frequency (at most 5)"

_LARGEST_WEIGHT = 5.0
_SMOOTH = 1e-5


def prior_weight(counts: Tensor) -> Tensor:
    """Return class weights w_c = 2 - n_c / sum n, float64 [C], for counts n [C]: 2 for a class without a sample.

    Raises ValueError for counts that are negative, not finite or all 0.

    >>> prior_weight(torch.tensor([3, 1, 0]))
    tensor([1.2500, 1.7500, 2.0000], dtype=torch.float64)
    """
    number = check_counts(counts)
    return 2.0 - number / number.sum()


def inverse_weight(counts: Tensor) -> Tensor:
    """Return class weights in proportion to the inverse class frequency, float64 [C], for counts n [C].

    w_c = min(5, (1 / n_c) / m), m the mean of 1 / n over the classes present: their mean is 1 before the cap. A
    class without a sample gets what a single sample would, and does not enter the mean.

    Raises ValueError for counts that are negative, not finite or all 0.

    >>> inverse_weight(torch.tensor([3, 1, 0]))
    tensor([0.5000, 1.5000, 1.5000], dtype=torch.float64)
    """
    number = check_counts(counts)
    present = number > 0
    inverse = torch.where(present, number, 1.0).reciprocal()
    return (inverse / inverse[present].mean()).clamp(max=_LARGEST_WEIGHT)


def class_weight(rule: ClassWeight, counts: Tensor) -> Tensor | None:
    """Return the weight of each class, float32 [C], or None for 1.

    >>> class_weight("prior", torch.tensor([3.0, 1.0]))
    tensor([1.2500, 1.7500])
    """
    if rule == "none":
        return None
    return (prior_weight if rule == "prior" else inverse_weight)(counts).float()


def check_counts(counts: Tensor) -> Tensor:
    """Return counts [C] in float64; ValueError for another shape, negative or infinite ones, or if all are 0."""
    number = counts.double()
    if number.ndim != 1:
        raise ValueError(f"counts must be one number a class, got shape {list(number.shape)}")
    if not bool(torch.isfinite(number).all()) or bool((number < 0).any()):
        raise ValueError(f"counts must be finite and not negative, got {number.tolist()}")
    if not bool((number > 0).any()):
        raise ValueError("counts are all 0: there is no labelled sample to weigh by")
    return number


def weight_of(logits: Tensor, weight: Tensor) -> Tensor:
    """Return numbers per class [C] in the dtype of logits [N, C, ...] and on their device; ValueError if not C."""
    if weight.shape != logits.shape[1:2]:
        raise ValueError(f"{list(weight.shape)} class weights do not fit {logits.shape[1]} classes")
    return weight.to(logits)


def class_index(logits: Tensor, target: Tensor) -> Tensor:
    """Return the targets as an index into the class dimension of the logits, int64 [N, 1, ...].

    Shapes: logits [N, C, ...]; target [N, ...] or [N, 1, ...], any integer dtype.
    Raises ValueError for no samples, a target that is not integer, of another shape, or outside 0 .. C - 1.
    """
    if logits.ndim < 2 or logits.numel() == 0:
        raise ValueError(f"logits must be [N, C, ...] with at least one sample, got {list(logits.shape)}")
    if target.is_floating_point() or target.is_complex():
        raise ValueError(f"target must hold integer classes, got {target.dtype}")
    expected = (logits.shape[0], 1, *logits.shape[2:])
    index = target if target.shape == expected else target.unsqueeze(1) if target.ndim else target
    if index.shape != expected:
        raise ValueError(f"target of shape {list(target.shape)} does not fit logits of {list(logits.shape)}")
    index = index.long()
    lowest, highest = (int(bound) for bound in index.aminmax())
    if lowest < 0 or highest >= logits.shape[1]:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"target holds class {wrong}, but there are only classes 0 to {logits.shape[1] - 1}")
    return index


def full_precision(logits: Tensor) -> Tensor:
    """Return logits in float32 where they are in half precision, which has too few digits for a loss."""
    return logits.float() if torch.finfo(logits.dtype).bits < 32 else logits


def soft_dice(probability: Tensor, index: Tensor, spread: Tensor | None = None) -> Tensor:
    """Compute the soft Dice loss over all classes, background included, a scalar.

    1 - (1/C) sum_c (2 |y_c p_c| + e) / (|y_c^2| + |p_c^2| + |spread_c| + e), sums over all pixels of the batch,
    e = 1e-5. Class by class, float32 gradients are those of the authors' code to 1e-5 in every entry.

    Shapes: probability [N, C, ...]; index [N, 1, ...] int64; spread [N, C, ...] or None for none.

    >>> soft_dice(torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]]), torch.tensor([[[[0, 1]]]]))
    tensor(0.)
    """
    target, scores = index.squeeze(1), []
    spreads = () if spread is None else spread.unbind(1)
    for label, own in enumerate(probability.unbind(1)):
        truth = target == label
        size = truth.sum() + own.square().sum()
        if spreads:
            size = size + spreads[label].sum()
        scores.append((2.0 * (truth * own).sum() + _SMOOTH) / (size + _SMOOTH))
    return 1.0 - torch.stack(scores).mean()


class PlainCrossEntropy(nn.Module):
    """Cross entropy of the softmax, sum_i w_y (-log p_y) / sum_i w_y with p = softmax(z).

    Shapes: logits [N, C] or [N, C, H, W]; target [N] or [N, H, W], or with a class dimension of 1;
    class_weight [C] or None for 1. A scalar.
    Raises ValueError for a target out of range or class weights of another length.

    >>> PlainCrossEntropy()(torch.zeros(1, 2), torch.tensor([1]), 0)
    tensor(0.6931)
    """

    def __init__(self, class_weight: Tensor | None = None) -> None:
        super().__init__()
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", class_weight)

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        weight = None if self.class_weight is None else weight_of(logits, self.class_weight)
        return F.cross_entropy(logits, class_index(logits, target).squeeze(1), weight)


class BalancedCrossEntropy(nn.Module):
    """Balanced softmax: cross entropy on z + log n_c, with n_c the labelled samples of each class, counts [C].

    Classes with n_c = 0 are left out of the softmax and get no gradient. Shapes: as `PlainCrossEntropy`.
    Raises ValueError for counts that are negative, not finite or all 0, for a target out of range, and for a
    target whose class has no count.

    >>> loss = BalancedCrossEntropy(torch.tensor([1, 3, 0]))
    >>> loss(torch.zeros(1, 3), torch.tensor([1]), 0).exp()  # 1 / (3 / 4)
    tensor(1.3333)
    """

    offset: Tensor

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.register_buffer("offset", check_counts(counts).log())
        self._has_empty_class = bool(self.offset.isinf().any())

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        index = class_index(logits, target)
        offset = weight_of(logits, self.offset)
        if self._has_empty_class and bool(offset[index].isinf().any()):
            wrong = sorted({int(i) for i in index[offset[index].isinf()]})
            raise ValueError(f"classes {wrong} are in the target but have a count of 0: count every label")
        shape = (1, -1, *[1] * (logits.ndim - 2))
        return F.cross_entropy(logits + offset.reshape(shape), index.squeeze(1))


class PlainDice(nn.Module):
    """The soft Dice loss of the softmax, see `soft_dice`. Shapes and errors: as `PlainCrossEntropy`.

    >>> PlainDice()(torch.zeros(1, 2, 1, 2), torch.tensor([[[0, 1]]]), 0)
    tensor(0.3333)
    """

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        return soft_dice(torch.softmax(logits, 1), class_index(logits, target))


class Loss(Configurable, ABC):
    """Make a site's training objective, and read class probabilities from logits accordingly."""

    class_count_scope: ClassVar[ClassCountScope] = "site"
    """Whose labels are counted, unless the configuration decides."""

    @abstractmethod
    def objective(self, task: Task, counts: Tensor) -> Objective:
        """Return the objective for counts of labelled samples (or pixels) of each class, float64 [classes]."""

    def probability(self, logits: Tensor, *, task: Task) -> Tensor:
        """Return class probabilities of logits [N, C, ...]: by default the softmax."""
        return torch.softmax(logits, dim=1)


LOSSES: Registry[type[Loss]] = Registry("loss")


@LOSSES.register("plain", summary="cross entropy with class weights; soft Dice in segmentation")
class PlainLoss(Loss):
    """Cross entropy of the softmax in classification, soft Dice in segmentation."""

    class Params(Loss.Params):
        """Class weights."""

        class_weight: ClassWeight = Field("prior", description=CLASS_WEIGHT)

    params: Params

    def objective(self, task: Task, counts: Tensor) -> Objective:
        if task == "segmentation":
            return PlainDice()
        return PlainCrossEntropy(class_weight(self.params.class_weight, counts))


@LOSSES.register("balanced", summary="balanced softmax: cross entropy under the class prior")
class BalancedLoss(Loss):
    """Balanced softmax over the labelled samples of all sites, or of the site alone."""

    class_count_scope: ClassVar[ClassCountScope] = "global"

    def objective(self, task: Task, counts: Tensor) -> Objective:
        return BalancedCrossEntropy(counts)
