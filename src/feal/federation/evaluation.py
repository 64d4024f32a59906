"""Figures of a model over a site's test part, as sums that pool over sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from feal.federation.statistics import CALIBRATION_BINS, ENERGY_BINS, ENERGY_RANGE, Statistics
from feal.models import Network
from feal.selection import Context, RoleModel

Read = Callable[[Sequence[str]], torch.Tensor]


@torch.no_grad()
def evaluate(
    network: Network,
    ids: Sequence[str],
    *,
    read: Read,
    truth: Read,
    context: Context,
    batch_size: int,
    device: torch.device,
) -> Statistics | None:
    """Statistics of the network over samples with known truth; None where there is no sample."""
    model = RoleModel(network.to(device).eval())
    total: Statistics | None = None
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        statistics = _batch(model, read(batch).to(device), truth(batch).to(device), context)
        total = statistics if total is None else total + statistics
    return total


def _batch(model: RoleModel, images: torch.Tensor, target: torch.Tensor, context: Context) -> Statistics:
    logits = model(images).logits
    probability = context.probability(logits)
    evidence = context.concentration(logits) > 1
    aleatoric, epistemic = model.uncertainty(images, context)
    prediction = logits.argmax(1)
    confusion = _confusion(target, prediction, context.classes)
    confidence = probability.gather(1, prediction.unsqueeze(1)).squeeze(1).double().flatten()
    right = (prediction == target).flatten()
    bins = (confidence * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    images_dice, images_counted = _dice(target, prediction, context)
    return Statistics(
        samples=len(images),
        confusion=confusion.tolist(),
        calibration_count=torch.bincount(bins, minlength=CALIBRATION_BINS).tolist(),
        calibration_confidence=torch.bincount(bins, confidence, minlength=CALIBRATION_BINS).tolist(),
        calibration_correct=torch.bincount(bins[right], minlength=CALIBRATION_BINS).tolist(),
        energy=_energies(logits),
        aleatoric=float(aleatoric.sum()),
        epistemic=float(epistemic.sum()),
        zero_evidence=float(_share(~evidence.any(1)).sum()),
        class_evidence=[float(_share(evidence[:, c]).sum()) for c in range(context.classes)],
        dice=images_dice,
        dice_count=images_counted,
    )


def _share(flags: torch.Tensor) -> torch.Tensor:
    return flags.double().reshape(len(flags), -1).mean(1)


def _confusion(target: torch.Tensor, prediction: torch.Tensor, classes: int) -> torch.Tensor:
    pairs = target.flatten().long() * classes + prediction.flatten()
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def _energies(logits: torch.Tensor) -> list[int]:
    energy = -torch.logsumexp(logits.double(), dim=1)
    per_image = energy.reshape(len(energy), -1).mean(1).clamp(*ENERGY_RANGE)
    low, high = ENERGY_RANGE
    return [int(count) for count in torch.histc(per_image.cpu(), ENERGY_BINS, low, high).tolist()]


def _dice(target: torch.Tensor, prediction: torch.Tensor, context: Context) -> tuple[list[float], list[int]]:
    """Per class: the sum over images of 2|A and B| / (|A| + |B|), and how many images have one.

    A class that neither truth nor prediction shows is left out of that image; one of the two alone scores 0.
    """
    if context.task == "classification":
        return [], []
    sums, counts = [], []
    for c in range(context.classes):
        truth, found = (target == c).flatten(1), (prediction == c).flatten(1)
        sizes = truth.sum(1) + found.sum(1)
        present = sizes > 0
        scores = 2.0 * (truth & found).sum(1)[present] / sizes[present]
        sums.append(float(scores.double().sum()))
        counts.append(int(present.sum()))
    return sums, counts
