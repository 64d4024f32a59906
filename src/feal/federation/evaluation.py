"""Figures of a model over a site's test part, as sums that pool over sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from feal.errors import FealError
from feal.federation.overlap import Regions, class_dice, region_scores
from feal.federation.statistics import CALIBRATION_BINS, ENERGY_BINS, ENERGY_RANGE, Region, Statistics
from feal.models import Network
from feal.selection import Context, RoleModel

Read = Callable[[Sequence[str]], torch.Tensor]


class Samples:
    """What a model says of each sample, in the order of `ids`; gathered on the way, at the site alone.

    Classification keeps `logits` [n, C]. Segmentation keeps for every image `dice` [n, C] (NaN where neither truth
    nor prediction shows the class), `region_dice` and `region_hd95` [n, R] alike, `aleatoric`, `epistemic` and
    `energy` [n].
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[torch.Tensor]] = {}

    def add(self, columns: Mapping[str, torch.Tensor]) -> None:
        """Take in a batch's columns."""
        for name, column in columns.items():
            self._parts.setdefault(name, []).append(column.cpu())

    def columns(self) -> dict[str, torch.Tensor]:
        """All batches' columns as one."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}


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
    regions: Regions | None = None,
    samples: Samples | None = None,
) -> Statistics | None:
    """Statistics of the network over samples with known truth; None where there is no sample.

    Segmentation is scored by class and by `regions`. `samples`, if given, gathers what the statistics are the
    sums of.
    """
    model = RoleModel(network.to(device).eval())
    total: Statistics | None = None
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        target = truth(batch).to(device)
        statistics, columns = _batch(model, read(batch).to(device), target, context, regions or {})
        if samples is not None:
            samples.add(columns)
        total = statistics if total is None else total + statistics
    return total


def _batch(
    model: RoleModel, images: torch.Tensor, target: torch.Tensor, context: Context, regions: Regions
) -> tuple[Statistics, dict[str, torch.Tensor]]:
    logits = model(images).logits
    if not bool(logits.isfinite().all()):
        raise FealError("The global model's outputs are not finite: start a new run with a lower training.lr.")
    probability = context.probability(logits)
    evidence = context.concentration(logits) > 1
    aleatoric, epistemic = model.uncertainty(images, context)
    prediction = logits.argmax(1)
    confusion = _confusion(target, prediction, context.classes)
    confidence = probability.gather(1, prediction.unsqueeze(1)).squeeze(1).double().flatten()
    right = (prediction == target).flatten()
    bins = (confidence * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    energy = _energy(logits)
    scores = _scores(target, prediction, context, regions)
    shown = [column[~column.isnan()] for column in scores["dice"].unbind(1)] if scores else []
    statistics = Statistics(
        samples=len(images),
        confusion=confusion.tolist(),
        calibration_count=torch.bincount(bins, minlength=CALIBRATION_BINS).tolist(),
        calibration_confidence=torch.bincount(bins, confidence, minlength=CALIBRATION_BINS).tolist(),
        calibration_correct=torch.bincount(bins[right], minlength=CALIBRATION_BINS).tolist(),
        energy=_histogram(energy),
        aleatoric=float(aleatoric.sum()),
        epistemic=float(epistemic.sum()),
        zero_evidence=float(_share(~evidence.any(1)).sum()),
        class_evidence=[float(_share(evidence[:, c]).sum()) for c in range(context.classes)],
        dice=[float(column.double().sum()) for column in shown],
        dice_count=[len(column) for column in shown],
        regions=_region_sums(scores, regions),
    )
    if context.task == "classification":
        return statistics, {"logits": logits}
    return statistics, {**scores, "aleatoric": aleatoric, "epistemic": epistemic, "energy": energy}


def _share(flags: torch.Tensor) -> torch.Tensor:
    return flags.double().reshape(len(flags), -1).mean(1)


def _confusion(target: torch.Tensor, prediction: torch.Tensor, classes: int) -> torch.Tensor:
    pairs = target.flatten().long() * classes + prediction.flatten()
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def _energy(logits: torch.Tensor) -> torch.Tensor:
    energy = -torch.logsumexp(logits.double(), dim=1)
    return energy.reshape(len(energy), -1).mean(1)


def _histogram(energy: torch.Tensor) -> list[int]:
    low, high = ENERGY_RANGE
    counts = torch.histc(energy.clamp(low, high).cpu(), ENERGY_BINS, low, high)
    return [int(count) for count in counts.tolist()]


def _scores(
    target: torch.Tensor, prediction: torch.Tensor, context: Context, regions: Regions
) -> dict[str, torch.Tensor]:
    """What each image's mask is worth, by class and by region; nothing for classification."""
    if context.task == "classification":
        return {}
    by_region = region_scores(target, prediction, regions)
    return {
        "dice": class_dice(target, prediction, classes=context.classes),
        "region_dice": by_region[0],
        "region_hd95": by_region[1],
    }


def _region_sums(scores: Mapping[str, torch.Tensor], regions: Regions) -> dict[str, Region]:
    sums = {}
    for index, name in enumerate(regions if scores else ()):
        dice, hd95 = scores["region_dice"][:, index], scores["region_hd95"][:, index]
        sums[name] = Region(
            dice=float(dice.double().nansum()), hd95=float(hd95.nansum()), count=int((~hd95.isnan()).sum())
        )
    return sums
