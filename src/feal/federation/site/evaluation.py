"""Evaluate a model on a site's test samples: sums that can be pooled over sites."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn import functional as F

from feal.errors import FealError
from feal.metrics import EvaluatedBatch, Metric, find_metrics
from feal.metrics.registry import extra_sums, find_bad_sum
from feal.metrics.segmentation import Hd95, Regions, score_classes, score_regions
from feal.metrics.statistics import CALIBRATION_BINS, ENERGY_BINS, ENERGY_RANGE, Region, Statistics
from feal.models import Network
from feal.selection import RoleModel, SelectionContext
from feal.tensors import to_device

Read = Callable[[Sequence[str]], torch.Tensor]


@torch.no_grad()
def evaluate(
    network: Network,
    ids: Sequence[str],
    *,
    read: Read,
    labels: Read,
    context: SelectionContext,
    batch_size: int,
    device: torch.device,
    regions: Regions | None = None,
    metrics: Sequence[Metric] | None = None,
) -> tuple[Statistics | None, dict[str, torch.Tensor]]:
    """Compute the statistics of a network over labelled samples, and its outputs for each of them.

    The statistics are None without a sample. The outputs are columns in the order of `ids`, for the site itself:
    `logits` [n, C] in classification; in segmentation `dice` [n, C] (NaN where neither mask nor prediction shows
    the class), `region_dice` and `region_hd95` [n, R] alike, `aleatoric`, `epistemic` and `energy` [n].

    Args:
        network: what is evaluated.
        ids: the samples.
        read: returns their images.
        labels: returns their classes or masks.
        context: how logits become probabilities and uncertainties.
        batch_size: samples in a batch.
        device: where the network runs.
        regions: what masks are scored by besides the classes.
        metrics: what is computed; by default the registered metrics of the task.

    Raises:
        FealError: the network's outputs are not finite, or a metric fails or returns sums it did not declare.
    """
    model = RoleModel(network.to(device).eval())
    computed = find_metrics(context.task) if metrics is None else metrics
    total: Statistics | None = None
    outputs: dict[str, list[torch.Tensor]] = {}
    for start in range(0, len(ids), batch_size):
        batch = ids[start : start + batch_size]
        target = to_device(labels(batch), device)
        statistics, columns = _evaluate_batch(
            model, read(batch).to(device), target, context, regions or {}, computed
        )
        for name, column in columns.items():
            outputs.setdefault(name, []).append(column.cpu())
        total = statistics if total is None else total + statistics
    undeclared = find_bad_sum(total, computed) if total is not None else ""
    if undeclared:
        raise FealError(f"The evaluation gave {undeclared}: correct the metric's `sums` or `bounds`.")
    return total, {name: torch.cat(batches) for name, batches in outputs.items()}


def _evaluate_batch(
    model: RoleModel,
    images: torch.Tensor,
    target: torch.Tensor,
    context: SelectionContext,
    regions: Regions,
    metrics: Sequence[Metric],
) -> tuple[Statistics, dict[str, torch.Tensor]]:
    logits = enlarge_logits(model(images).logits, target)
    if not bool(logits.isfinite().all()):
        raise FealError("The global model's outputs are not finite: start a new run with a lower training.lr.")
    probability = context.probability(logits)
    has_evidence = context.concentration(logits) > 1
    aleatoric, epistemic = model.uncertainty(images, context)
    prediction = logits.argmax(1)
    confidence = probability.gather(1, prediction.unsqueeze(1)).squeeze(1).double().flatten()
    correct = (prediction == target).flatten()
    bins = (confidence * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    energy = _energy(logits)
    scores = _score_masks(target, prediction, context, regions, metrics)
    dice = [column[~column.isnan()] for column in scores["dice"].unbind(1)] if scores else []
    evaluated = EvaluatedBatch(logits=logits, probability=probability, prediction=prediction, target=target)
    statistics = Statistics(
        samples=len(images),
        confusion=_confusion(target, prediction, context.classes).tolist(),
        calibration_count=torch.bincount(bins, minlength=CALIBRATION_BINS).tolist(),
        calibration_confidence=torch.bincount(bins, confidence, minlength=CALIBRATION_BINS).tolist(),
        calibration_correct=torch.bincount(bins[correct], minlength=CALIBRATION_BINS).tolist(),
        energy=_histogram(energy),
        aleatoric=float(aleatoric.sum()),
        epistemic=float(epistemic.sum()),
        zero_evidence=float(_share(~has_evidence.any(1)).sum()),
        class_evidence=[float(_share(has_evidence[:, c]).sum()) for c in range(context.classes)],
        dice=[float(column.double().sum()) for column in dice],
        dice_count=[len(column) for column in dice],
        regions=_region_sums(scores, regions),
        extra=extra_sums(metrics, evaluated),
    )
    if context.task == "classification":
        return statistics, {"logits": logits}
    return statistics, {**scores, "aleatoric": aleatoric, "epistemic": epistemic, "energy": energy}


def enlarge_logits(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return logits of the masks' size: a head on a frozen encoder's maps gives coarser ones."""
    if logits.ndim == 2 or logits.shape[2:] == target.shape[1:]:
        return logits
    return F.interpolate(logits, size=target.shape[1:], mode="bilinear", align_corners=False)


def _share(flags: torch.Tensor) -> torch.Tensor:
    """Return the share of each sample's flags that are set, float64 [n]."""
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


def _score_masks(
    target: torch.Tensor,
    prediction: torch.Tensor,
    context: SelectionContext,
    regions: Regions,
    metrics: Sequence[Metric],
) -> dict[str, torch.Tensor]:
    """Score each image's mask by class and by region; nothing for classification."""
    if context.task == "classification":
        return {}
    rule = next(metric.params.rule for metric in metrics if isinstance(metric, Hd95))
    region_dice, region_hd95 = score_regions(target, prediction, regions, rule=rule)
    dice = score_classes(target, prediction, classes=context.classes)
    return {"dice": dice, "region_dice": region_dice, "region_hd95": region_hd95}


def _region_sums(scores: Mapping[str, torch.Tensor], regions: Regions) -> dict[str, Region]:
    sums = {}
    for index, name in enumerate(regions if scores else ()):
        dice, hd95 = scores["region_dice"][:, index], scores["region_hd95"][:, index]
        sums[name] = Region(
            dice=float(dice.double().nansum()), hd95=float(hd95.nansum()), count=int((~hd95.isnan()).sum())
        )
    return sums
