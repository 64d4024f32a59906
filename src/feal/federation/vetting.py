"""What a site's reply must be for the coordinator to use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch.nn.utils import get_total_norm

from feal.data.fitting import Fitting
from feal.federation import messages
from feal.federation.statistics import CALIBRATION_BINS, ENERGY_BINS, Statistics

LONGEST_TEXT = 600
"""Characters of what a site says that are shown."""


def vet(reply: messages.Reply, request: messages.Request, *, site: str, task: str, classes: int) -> str:
    """Why a reply cannot be used, in a sentence; empty if it can.

    Args:
        reply: what came.
        request: what was asked; its weights say which names, shapes and types others must have.
        site: who was asked.
        task: classification or segmentation.
        classes: number of classes of the run.
    """
    if type(reply).kind != request.kind or reply.key != request.key or reply.site != site:
        return f"Site {site} sent a reply to something else."
    if reply.status == "failed":
        return reply.reason or f"Site {site} failed and did not say why."
    counts = getattr(reply, "class_counts", None)
    if counts is not None and (len(counts) != classes or min(counts, default=0) < 0):
        return f"Site {site} sent class counts that do not fit the run's {classes} classes."
    statistics = getattr(reply, "statistics", None)
    if statistics is not None and not _fits(statistics, task, classes):
        return f"Site {site} sent figures that do not fit the run's {classes} classes."
    if isinstance(reply, messages.TrainReply) and reply.labelled and reply.weights is None:
        return f"Site {site} has labels and sent no weights."
    if reply.weights is not None and request.weights is not None:
        problem = vet_weights(reply.weights, request.weights)
        return f"Site {site} sent {problem}." if problem else ""
    return ""


def plain_words(text: str) -> str:
    """A site's text as one line that is safe to show: no control characters, and not without end.

    >>> plain_words("Site birch\\n\\x1b[2J is fine")
    'Site birch [2J is fine'
    """
    shown = "".join(character if character.isprintable() else " " for character in text[:LONGEST_TEXT])
    return " ".join(shown.split()) + ("…" if len(text) > LONGEST_TEXT else "")


def vet_weights(weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str:
    """What is wrong with a model's weights; names that are not expected are no matter."""
    for name in sorted(expected):
        like, tensor = expected[name], weights.get(name)
        if tensor is None:
            return f"weights without {name}"
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            return (
                f"weights of another shape or type ({name} is {tuple(tensor.shape)} {tensor.dtype}, "
                f"not {tuple(like.shape)} {like.dtype})"
            )
    if not all_finite(weights[name] for name in expected):
        odd = next(name for name in sorted(expected) if not all_finite([weights[name]]))
        return f"weights that are not finite ({odd})"
    return ""


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether no tensor holds a NaN or an infinity.

    >>> all_finite([torch.ones(2), torch.tensor(3)]), all_finite([torch.tensor([1.0, float("nan")])])
    (True, False)
    """
    floating = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    # The largest absolute value, since one call for all is many times faster than a question to each.
    return bool(get_total_norm(floating, norm_type=math.inf).isfinite()) if floating else True


def unexpected(reply: messages.Reply, request: messages.Request) -> list[str]:
    """Names of fields and tensors in a reply that nothing here knows."""
    tensors = set(reply.weights or {}) - set(request.weights or {})
    return [*reply.unexpected, *sorted(tensors)]


def _fits(statistics: Statistics, task: str, classes: int) -> bool:
    per_class = [len(statistics.class_evidence), *map(len, statistics.confusion)]
    bins = map(len, (statistics.calibration_count, statistics.calibration_correct))
    return (
        statistics.samples > 0
        and len(statistics.confusion) == classes
        and all(count == classes for count in per_class)
        and len(statistics.dice) == len(statistics.dice_count)
        and len(statistics.dice) == (classes if task == "segmentation" else 0)
        and (task == "segmentation" or not statistics.regions)
        and all(region.count <= statistics.samples for region in statistics.regions.values())
        and all(count == CALIBRATION_BINS for count in bins)
        and len(statistics.calibration_confidence) == CALIBRATION_BINS
        and len(statistics.energy) == ENERGY_BINS
    )


def _kind(reply: messages.JoinReply) -> tuple[object, ...]:
    return reply.task, reply.classes, reply.channels, reply.height, reply.width


def unfit(reply: messages.JoinReply, *, first: messages.JoinReply, counted: int) -> str:
    """Why a site cannot take part, in a sentence."""
    if _kind(reply) != _kind(first):
        return f"Sites {first.site} and {reply.site} differ in task, classes or image size: prepare them alike."
    # Where nobody noted it, it counts as a plain resize.
    fitted, before = reply.fitting or Fitting(), first.fitting or Fitting()
    if fitted != before:
        return (
            f"Sites {first.site} and {reply.site} differ in how pictures were fitted to the image size "
            f"({before}; {fitted}): prepare them alike."
        )
    # After a kill a site may know of more answers than were counted, but never of fewer.
    if reply.labelled + reply.declined < counted:
        return (
            f"Site {reply.site} has {reply.labelled} labels where {counted} were counted: "
            "put its site.sqlite back from a copy, or start a new run."
        )
    return ""
