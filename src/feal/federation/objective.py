"""The training loss that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from feal.evidential import (
    BalancedCrossEntropy,
    EvidentialCrossEntropy,
    EvidentialDice,
    PlainCrossEntropy,
    PlainDice,
    inverse_weight,
    prior_weight,
)
from feal.settings import Evidence, Settings, Task

Objective = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def objective(
    settings: Settings, *, task: Task, site_counts: torch.Tensor, total_counts: torch.Tensor
) -> Objective:
    """The loss `(logits, target, communication round) -> scalar` for a site's labelled counts [classes]."""
    if settings.loss == "balanced":
        return BalancedCrossEntropy(site_counts if settings.counts == "site" else total_counts)
    if task == "segmentation":
        return _evidential_dice(settings.evidence) if settings.loss == "evidential" else PlainDice()
    weight = _class_weight(settings.evidence, total_counts if settings.counts == "global" else site_counts)
    if settings.loss == "plain":
        return PlainCrossEntropy(weight)
    return EvidentialCrossEntropy(
        settings.evidence.lambda_,
        _annealing(settings.evidence),
        weight,
        activation=settings.evidence.activation,
        squared=bool(settings.evidence.squared),
    )


def _evidential_dice(evidence: Evidence) -> EvidentialDice:
    squared = evidence.squared is not False
    return EvidentialDice(evidence.lambda_, _annealing(evidence), squared, activation=evidence.activation)


def _annealing(evidence: Evidence) -> int | None:
    return None if evidence.annealing == "none" else evidence.annealing


def _class_weight(evidence: Evidence, counts: torch.Tensor) -> torch.Tensor | None:
    if evidence.class_weight == "none":
        return None
    return (prior_weight if evidence.class_weight == "prior" else inverse_weight)(counts).float()
