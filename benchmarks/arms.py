"""What the study of label efficiency compares: the arms, and each loss's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from feal.config import load
from feal.errors import FealError
from feal.selection.base import QueryModel
from feal.settings import Settings

Loss = Literal["plain", "evidential", "balanced"]


@dataclass(frozen=True)
class Arm:
    """A way to choose, on a loss."""

    name: str
    strategy: str
    loss: Loss
    query_model: QueryModel | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)


ARMS = (
    # name                    strategy   loss          query model
    Arm("random-plain",       "random",  "plain"),
    Arm("random-evidential",  "random",  "evidential"),
    Arm("random-balanced",    "random",  "balanced"),
    Arm("entropy-plain",      "entropy", "plain",      "ensemble"),
    Arm("badge-plain",        "badge",   "plain",      "global"),
    Arm("coreset-plain",      "coreset", "plain",      "global"),
    Arm("logo-plain",         "logo",    "plain"),
    Arm("kafal-balanced",     "kafal",   "balanced"),
    Arm("feal-evidential",    "feal",    "evidential"),
    Arm("feal-unrelaxed",     "feal",    "evidential", overrides={"strategy.rule": "none"}),
    Arm("strata-balanced",    "strata",  "balanced"),
    # The same choices on the loss of strata, to tell loss and selection apart.
    Arm("entropy-balanced",   "entropy", "balanced",   "ensemble"),
    Arm("badge-balanced",     "badge",   "balanced",   "global"),
    Arm("logo-balanced",      "logo",    "balanced"),
)  # fmt: skip

REFERENCE = "random-plain"

# By data set and loss, as `label_efficiency.py --tune` found them; never by strategy. So counts stand here too:
# kafal would bring the site's own, and its difference to random would be partly the loss's.
LOSSES: dict[str, dict[Loss, dict[str, Any]]] = {
    "synthetic-lesions": {
        "plain": {"training.lr": 3e-3, "loss.class_weight": "inverse"},
        "evidential": {"training.lr": 3e-3, "loss.class_weight": "inverse"},
        "balanced": {"training.lr": 3e-3, "class_count_scope": "global"},
    },
    "synthetic-polyps": {
        "plain": {"training.lr": 2e-3},
        "evidential": {"training.lr": 6e-3},
        "balanced": {"training.lr": 2e-3, "class_count_scope": "global"},
    },
    "fed-isic": {
        "plain": {"training.lr": 1e-1, "training.weight_decay": 1e-2, "class_count_scope": "site"},
        "evidential": {"training.lr": 1e-2, "training.weight_decay": 1e-3, "class_count_scope": "site"},
        "balanced": {"training.lr": 1e-2, "training.weight_decay": 3e-1, "class_count_scope": "global"},
    },
    "fed-polyp": {
        "plain": {"training.lr": 6e-3},
        "evidential": {"training.lr": 2e-3},
        "balanced": {"training.lr": 6e-3, "class_count_scope": "global"},
    },
}

WEIGHTS = ("prior", "inverse")
RATES = (1e-2, 3e-2, 1e-1)
MASK_RATES = (7e-4, 2e-3, 6e-3, 2e-2)
# Dice takes no class weights.
_MASKS: dict[Loss, dict[str, Sequence[Any]]] = {
    "plain": {"training.lr": MASK_RATES},
    "evidential": {"training.lr": MASK_RATES},
    "balanced": {"training.lr": MASK_RATES},
}
# What --tune tries.
GRID: dict[str, dict[Loss, dict[str, Sequence[Any]]]] = {
    "synthetic-lesions": {
        "plain": {"training.lr": (1e-3, 3e-3, 1e-2), "loss.class_weight": WEIGHTS},
        "evidential": {"training.lr": (1e-3, 3e-3, 1e-2, 3e-2), "loss.class_weight": WEIGHTS},
        "balanced": {"training.lr": (1e-3, 3e-3, 1e-2)},
    },
    "synthetic-polyps": _MASKS,
    "fed-isic": {
        "plain": {
            "training.lr": (*RATES, 3e-1),
            "training.weight_decay": (0.0, 1e-2, 3e-2),
            "class_count_scope": ("site",),
        },
        "evidential": {
            "training.lr": (3e-3, *RATES),
            "training.weight_decay": (0.0, 1e-3, 1e-2),
            "class_count_scope": ("site",),
        },
        "balanced": {
            "training.lr": (3e-3, *RATES),
            "training.weight_decay": (0.0, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
            "class_count_scope": ("global",),
        },
    },
    "fed-polyp": _MASKS,
}

OTHERS = ("dataset.seed", "validation")
"""What keeps tuning away from the pictures that the comparison is judged by."""
VALIDATION = 0.25

FIXED = {"transport": "in-process", "threads": 1, "diagnostics": False}
OWN = ("strategy", "strategy.query_model", "loss", "seed", *FIXED)
"""Settings that the study gives itself."""


def arm_settings(arm: Arm, preset: str, overrides: Mapping[str, Any], *, seed: int) -> Settings:
    """One run's settings: the preset, then the loss's, the user's and the arm's.

    Raises:
        FealError: a preset, setting or strategy that does not exist, or an override of what the study sets itself.
    """
    for key in OWN:
        if key in overrides:
            raise FealError(f"{key} is set by the study itself: leave it out.")
    own: dict[str, Any] = {"strategy": arm.strategy, "loss": arm.loss, "seed": seed}
    if arm.query_model is not None:
        own["strategy.query_model"] = arm.query_model
    of_loss = LOSSES.get(load(preset, overrides).dataset.name, {}).get(arm.loss, {})
    return load(preset, {**of_loss, **overrides, **arm.overrides, **own, **FIXED})


def trials(preset: str, overrides: Mapping[str, Any]) -> list[Arm]:
    """What --tune tries: random selection with every point of the data set's grid, on other pictures.

    Raises:
        FealError: a data set without a grid.
    """
    dataset = load(preset, overrides).dataset.name
    # Synthetic pictures can be drawn anew; of patients' a part of the training samples is held out.
    others = {"dataset.seed": 1} if dataset.startswith("synthetic-") else {"validation": VALIDATION}
    if dataset not in GRID:
        raise FealError(f"--tune has no grid for {dataset}: it is for {', '.join(GRID)}.")
    return [
        Arm(
            "-".join([loss, *map(_short, tried.values())]),
            "random",
            loss,
            None,
            {**tried, **others},
        )
        for loss, grid in GRID[dataset].items()
        for tried in _points(grid)
    ]


def references() -> Iterator[tuple[str, str]]:
    """Each arm with random on its own loss, which leaves the selection, and with random on the plain loss."""
    for arm in ARMS:
        own = next(other.name for other in ARMS if other.strategy == "random" and other.loss == arm.loss)
        yield from ((arm.name, name) for name in dict.fromkeys((own, REFERENCE)) if name != arm.name)


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
