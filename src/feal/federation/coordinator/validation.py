"""Validate what sites send before the coordinator uses it."""

from collections.abc import Mapping, Sequence

import torch

from feal.data.augment import check_transforms
from feal.data.resize import Fitting
from feal.federation import protocol as messages
from feal.metrics import Metric
from feal.metrics.registry import find_bad_sum
from feal.metrics.statistics import find_inconsistency
from feal.models import find_model
from feal.settings import Trainable, Transforms
from feal.tensors import Tensors, all_finite

LONGEST_TEXT = 600
"""Characters of a site's text that are shown."""


def find_problem(
    reply: messages.Reply,
    request: messages.Request,
    *,
    site: str,
    task: str,
    classes: int,
    metrics: Sequence[Metric] = (),
    layout: Tensors | None = None,
) -> str:
    """Return why a reply cannot be used, in a sentence; empty if it can.

    `layout` determines the names, shapes and types of the reply's tensors, by default the weights of the request;
    the metrics determine the sums that an evaluation adds.
    """
    layout = request.weights if layout is None else layout
    if type(reply).kind != request.kind or reply.key != request.key or reply.site != site:
        return f"Site {site} sent a reply to another request."
    if reply.status == "failed":
        return reply.reason or f"Site {site} failed without giving a reason."
    counts = getattr(reply, "class_counts", None)
    if counts is not None and (len(counts) != classes or min(counts, default=0) < 0):
        return f"Site {site} sent class counts that do not fit the run's {classes} classes."
    statistics = getattr(reply, "statistics", None)
    if statistics is not None:
        impossible = find_inconsistency(statistics, task=task, classes=classes)
        impossible = impossible or find_bad_sum(statistics, metrics)
        if impossible:
            return f"Site {site} sent metrics that no evaluation gives ({impossible})."
    if isinstance(reply, messages.TrainReply) and reply.labelled and reply.weights is None:
        return f"Site {site} has labels and sent no weights."
    if reply.weights is not None and layout is not None:
        problem = find_weights_problem(reply.weights, layout)
        return f"Site {site} sent {problem}." if problem else ""
    return ""


def sanitize(text: str) -> str:
    """Make a site's text safe to show: one line of limited length without control characters.

    >>> sanitize("Site birch\\n\\x1b[2J is fine")
    'Site birch [2J is fine'
    """
    shown = "".join(character if character.isprintable() else " " for character in text[:LONGEST_TEXT])
    return " ".join(shown.split()) + ("…" if len(text) > LONGEST_TEXT else "")


def find_weights_problem(weights: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str:
    """Return what is wrong with a model's weights; names that are not expected are ignored."""
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


def list_unexpected(reply: messages.Reply, layout: Tensors | None) -> list[str]:
    """List fields and tensors in a reply that are not part of the protocol or of what was requested."""
    tensors = set(reply.weights or {}) - set(layout or {})
    return [*reply.unexpected, *sorted(tensors)]


def find_incompatibility(reply: messages.JoinReply, *, first: messages.JoinReply, counted: int) -> str:
    """Return why a site cannot take part, in a sentence; empty if it can.

    It must fit the `first` site that joined, and have the labels that the run has `counted` there so far.
    """
    alike = ("task", "classes", "channels", "height", "width")
    if any(getattr(reply, name) != getattr(first, name) for name in alike):
        return f"Sites {first.site} and {reply.site} differ in task, classes or image size: prepare them alike."
    if (reply.encoder, reply.features) != (first.encoder, first.features):
        return (
            f"Sites {first.site} and {reply.site} have different encoders ({first.encoder[:8]} and "
            f"{reply.encoder[:8]}): install the same file at both."
        )
    # Where it is not recorded, it counts as a plain resize.
    fitted, before = reply.fitting or Fitting(), first.fitting or Fitting()
    if fitted != before:
        return (
            f"Sites {first.site} and {reply.site} differ in how images were resized "
            f"({before}; {fitted}): prepare them alike."
        )
    # After a kill a site may know of more answers than were counted, but never of fewer.
    if reply.labelled + reply.declined < counted:
        return (
            f"Site {reply.site} has {reply.labelled} labels where {counted} were counted: "
            "restore its site.sqlite from a copy, or start a new run."
        )
    return ""


def check_images(site: messages.JoinReply, *, model: str, transforms: Transforms, trainable: Trainable) -> None:
    """Check that the transforms and the network fit the images.

    Raises:
        FealError: they do not.
    """
    size = {"height": site.height, "width": site.width}
    check_transforms(transforms, task=site.task, channels=site.channels, fitting=site.fitting, **size)
    network = find_model(model)
    if transforms.crop:
        network.check_size(transforms.crop, transforms.crop)
    network.check_trunk(trainable, **size)
