"""Columns as a strategy would have observed them, made by hand: any number of samples, without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import relaxation
from feal.evidential import build_loss
from feal.selection import STRATEGIES, Columns, Selection, SelectionContext
from feal.settings import Component

CLASSES = 8
GROUPS = 200
SCORES: Mapping[str, str] = {
    "entropy": "entropy_global",
    "tod": "discrepancy",
    "kafal": "divergence",
    "gradnorm": "gradient_global",
    "margin": "margin_global",
}
"""The only column of those that rank by a score."""


@dataclass(frozen=True)
class Question:
    """What `choose` is given, but for budget and generator."""

    strategy: str
    pool: Columns
    labelled: Columns | None

    def choose(self, budget: int) -> Selection:
        """Choose, always with the same draws."""
        strategy = STRATEGIES.get(self.strategy)()
        return strategy.choose(self.pool, self.labelled, context(), budget, torch.Generator().manual_seed(0))


def context() -> SelectionContext:
    """Return a context of classification with default settings, all classes labelled alike."""
    counts = torch.ones(CLASSES, dtype=torch.float64)
    return SelectionContext(
        task="classification",
        classes=CLASSES,
        site_counts=counts,
        total_counts=counts,
        loss=build_loss(Component(name="plain")),
    )


def make_question(strategy: str, size: int, width: int, labelled: int) -> Question:
    """Make a pool of so many samples with features of that width, and labelled ones where they are needed."""
    draw = torch.Generator().manual_seed(0)
    pool = _columns(strategy, size, width, draw)
    beside = None
    if STRATEGIES.get(strategy)().needs_labelled:
        beside = _columns(strategy, labelled, width, draw)
    return Question(strategy, pool, beside)


def _columns(strategy: str, size: int, width: int, draw: torch.Generator) -> Columns:
    make: dict[str, Callable[[], dict[str, Tensor]]] = {
        "badge": lambda: {
            "residual_global": _residuals(size, draw),
            "features_global": draw_features(size, width, draw),
        },
        "coreset": lambda: {"features": draw_features(size, width, draw)},
        "logo": lambda: {
            "embedding": draw_features(size, width, draw),
            "entropy_global": _score(size, draw),
            "doubt_local": _score(size, draw),
        },
        "strata": lambda: {
            "deep": draw_features(size, width, draw),
            "rarity": _score(size, draw),
            "margin": _score(size, draw),
        },
        "maxherding": lambda: {"features": draw_features(size, width, draw)},
        "uherding": lambda: {"features": draw_features(size, width, draw), "margin": _score(size, draw)},
        "rarity-herding": lambda: {"features": draw_features(size, width, draw), "rarity": _score(size, draw)},
        "typiclust": lambda: {"features": draw_features(size, width, draw)},
        "probcover": lambda: {"features": draw_features(size, width, draw)},
        "dropquery": lambda: {"features": draw_features(size, width, draw), "changes": _score(size, draw)},
        "mixed": lambda: {"first.features": draw_features(size, width, draw)},
        "clasp-pe": lambda: {
            "entropy": _score(size, draw),
            "class_entropy": torch.rand((size, CLASSES), generator=draw),
        },
        "random-class": lambda: {"predicted": torch.randint(CLASSES, (size,), generator=draw).double()},
        "random-foreground": lambda: {"foreground": _score(size, draw)},
        "feal": lambda: _relaxation_columns(size, width),
    }
    scores = {SCORES[strategy]: _score(size, draw)} if strategy in SCORES else {}
    values = make[strategy]() if strategy in make else scores
    return Columns([f"{row:07}" for row in range(size)], values)


def draw_features(size: int, width: int, draw: torch.Generator) -> Tensor:
    """Draw groups of similar samples, no number below 0, as in a network's last block; without a second copy."""
    numbers = torch.empty((size, width))
    centres = torch.randn((GROUPS, width), generator=torch.Generator().manual_seed(1))
    for part in numbers.split(10_000):
        group = torch.randint(GROUPS, (len(part),), generator=draw)
        part.normal_(generator=draw).add_(centres[group]).clamp_min_(0)
    return numbers


def _residuals(size: int, draw: torch.Generator) -> Tensor:
    probability = torch.softmax(2 * torch.randn((size, CLASSES), generator=draw), dim=1)
    return one_hot(probability.argmax(1), CLASSES) - probability


def _score(size: int, draw: torch.Generator) -> Tensor:
    return torch.rand(size, dtype=torch.float64, generator=draw)


def _relaxation_columns(size: int, width: int) -> dict[str, Tensor]:
    """Make a pool in clusters, where most candidates are rejected."""
    pool = relaxation.draw_pool(relaxation.KINDS["clustered"], size, width)
    nothing = torch.zeros(size, dtype=torch.float64)
    return {
        "aleatoric_global": pool.scores,
        "aleatoric_local": nothing,
        "epistemic_global": nothing,
        "deep": pool.features,
    }
