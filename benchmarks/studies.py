"""The studies of the leaderboard: data, settings, arms and seeds, and the arm that each is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPORT_SEEDS, VALIDATION_SEED = 40, 1000
"""Seeds 0, 1, ... report; settings were chosen on seeds from 1000 on, which no table shows."""
PRESET = "recommended"

Overrides = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyArm:
    """One way to select and train, and the arm that it is compared with seed by seed."""

    overrides: Overrides
    reference: str = "random"
    seeds: int | None = None
    """How many seeds report, where it is fewer than the study's."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Arms on one data set."""

    title: str
    base: Overrides
    arms: Mapping[str, StudyArm]
    seeds: int = REPORT_SEEDS
    first_round: bool = False
    """Whether the outcome is the first round's metric; otherwise the mean over the later rounds."""
    notes: tuple[str, ...] = field(default=())


def _strategies(*names: str, **variants: Any) -> dict[str, StudyArm]:
    plain = {name: StudyArm(overrides={"strategy": name}) for name in ("random", *names)}
    return {**plain, **{name.replace("_", "-"): StudyArm(overrides=value) for name, value in variants.items()}}


_STRATA: dict[str, Any] = {
    "strata_rarity_2B": {"strategy": "strata", "strategy.score": "rarity", "strategy.k": 2},
    "strata_margin_2B": {"strategy": "strata", "strategy.score": "margin", "strategy.k": 2},
    "recommended": {"strategy": "strata", "initial_labels": "farthest"},
}
_CLASSIFICATION = _strategies(
    *("margin", "entropy", "badge", "coreset", "logo", "kafal", "feal", "strata", "maxherding", "uherding"),
    *("rarity-herding", "typiclust", "dropquery"),
    **{name: value for name, value in _STRATA.items() if name != "strata_margin_2B"},
)
_SEGMENTATION = _strategies(
    *("random-foreground", "entropy", "coreset", "badge", "feal", "strata", "maxherding", "uherding"),
    *("typiclust", "clasp-pe"),
)
_RIDGE = {"initial_labels": "random", "redraw_test": 0.25}
_ISIC = {**_RIDGE, "dataset": "fed-isic", "dataset.size": 224, "budget": 36}
_WBC = {**_RIDGE, "dataset": "wbc", "budget": 20}
_LINEAR = {
    "model.head": "linear",
    "communication_rounds": 20,
    "training.lr": 0.01,
    "training.local_epochs": 2,
    "training.weight_decay": 0.01,
}
_STARTS = {
    name: StudyArm(overrides={"strategy": "random", "initial_labels": name})
    for name in ("random", "farthest", "maxherding", "centroids")
}


def _linear_arms() -> dict[str, StudyArm]:
    """Random and a strategy on each loss, trained by FedAvg, each with random on the same loss beside it."""
    losses: Mapping[str, Overrides] = {
        "plain": {"loss": "plain", "loss.class_weight": "inverse"},
        "balanced": {"loss": "balanced"},
        "evidential": {"loss": "evidential", "loss.class_weight": "inverse"},
        "evidential-global": {
            "loss": "evidential",
            "loss.class_weight": "inverse",
            "class_count_scope": "global",
        },
    }
    arms = {}
    for loss, settings in losses.items():
        arms[f"random, {loss}"] = StudyArm(
            overrides={"strategy": "random", **settings}, reference=f"random, {loss}"
        )
    chosen = {"plain": "entropy", "balanced": "strata", "evidential": "feal", "evidential-global": "feal"}
    for loss, strategy in chosen.items():
        arms[f"{strategy}, {loss}"] = StudyArm(
            overrides={"strategy": strategy, **losses[loss]}, reference=f"random, {loss}"
        )
    return arms


STUDIES: Mapping[str, Study] = {
    "isic-vit": Study(
        title="Fed-ISIC, ridge on DINOv2-small (blocks 5 to 8), 36 labels a site and round",
        base=_ISIC,
        arms=_CLASSIFICATION,
    ),
    "wbc-vit": Study(
        title="White blood cells of four laboratories, ridge on DINOv2-small, 20 labels a site and round",
        base=_WBC,
        arms=_CLASSIFICATION,
    ),
    "isic-lite0": Study(
        title="Fed-ISIC, ridge on EfficientNet-Lite0",
        base={**_ISIC, "model.encoder": "efficientnet-lite0"},
        arms=_strategies("margin", "logo", "coreset", "strata"),
    ),
    "isic-lite2": Study(
        title="Fed-ISIC, ridge on EfficientNet-Lite2",
        base={**_ISIC, "model.encoder": "efficientnet-lite2"},
        arms=_strategies("strata"),
    ),
    "isic-start": Study(
        title="Fed-ISIC, the first 36 labels of a site",
        base={**_ISIC, "rounds": 1},
        arms=_STARTS,
        first_round=True,
    ),
    "wbc-start": Study(
        title="White blood cells, the first 20 labels of a site",
        base={**_WBC, "rounds": 1},
        arms=_STARTS,
        first_round=True,
    ),
    "isic-start-12": Study(
        title="Fed-ISIC, the first 12 labels of a site",
        base={**_ISIC, "rounds": 1, "budget": 12},
        arms=_STARTS,
        first_round=True,
    ),
    "wbc-start-10": Study(
        title="White blood cells, the first 10 labels of a site",
        base={**_WBC, "rounds": 1, "budget": 10},
        arms=_STARTS,
        first_round=True,
    ),
    "isic-12": Study(
        title="Fed-ISIC, ridge on DINOv2-small, 12 labels a site and round",
        base={**_ISIC, "budget": 12},
        arms=_strategies("strata", **_STRATA),
    ),
    "wbc-10": Study(
        title="White blood cells, ridge on DINOv2-small, 10 labels a site and round",
        base={**_WBC, "budget": 10},
        arms=_strategies("strata", "margin", "logo", **_STRATA),
    ),
    "isic-linear": Study(
        title="Fed-ISIC, a linear head on DINOv2-small by FedAvg",
        base={**_ISIC, **_LINEAR},
        arms=_linear_arms(),
    ),
    "polyp-vit": Study(
        title="Fed-Polyp, per-pixel ridge on DINOv2-small, 8 labels a site and round",
        base={**_RIDGE, "dataset": "fed-polyp", "dataset.size": 224, "budget": 8},
        arms=_SEGMENTATION,
        seeds=16,
    ),
    "wbc-seg-vit": Study(
        title="White blood cells, nucleus and cytoplasm, per-pixel ridge on DINOv2-small, 8 labels a round",
        base={**_RIDGE, "dataset": "wbc-seg", "budget": 8},
        arms=_SEGMENTATION,
        seeds=16,
    ),
}
