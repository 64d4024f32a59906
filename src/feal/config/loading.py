"""A preset and overrides, made into settings whose every name exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import torch

from feal.annotation import ANNOTATORS
from feal.config.catalogue import ABOUT, read_preset
from feal.config.overrides import build
from feal.data import DATASETS
from feal.data.datasets import is_named, no_such_dataset
from feal.errors import FealError
from feal.federation.engines import ENGINES
from feal.files import whole_path
from feal.models import MODELS, check_source, models_for
from feal.models.weights import IMAGENET, NONE
from feal.selection import Role, strategy_named, whole_name
from feal.settings import OPERATIONAL, Settings, Synthetic, Training, Transforms, flatten

EVERYTHING = {"rounds": 1, "budget": "all", "cap": 1.0, "initial": "random"}
"""A run in which every sample is labelled at once."""


def load(preset: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings of a preset (a name or the path of a YAML file) with overrides, nested or by dotted names.

    Raises:
        FealError: an unknown preset, key or name (with the nearest spelling), a wrong type or range.

    Example:
        >>> load("demo", {"seed": 1, "training.lr": 1e-3}).training.lr
        0.001
    """
    content = {key: value for key, value in read_preset(preset).items() if key != ABOUT}
    # Checked alone first, so that a mistake in the file is not blamed on the command line.
    build(flatten(content), source=f"preset {preset}")
    settings = build({**flatten(content), **flatten(overrides or {})}, source="the overrides")
    if settings.weights_digest is not None:
        raise FealError("weights_digest is found out when a run begins: leave it out.")
    settings = _with_known_weights(_with_known_names(settings))
    return _with_strategy_defaults(_with_dataset_defaults(settings))


def revise(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """A run's settings with other operational ones, by dotted names.

    Raises:
        FealError: a setting that decides what the run computes, an unknown one, a wrong type or range.

    Example:
        >>> revise(load("demo"), {"rounds": 9}).rounds
        9
    """
    flat = {**flatten(settings.dump()), **changes}
    new = build(flat, source="the overrides")
    for key in changes:
        if key not in OPERATIONAL:
            allowed = ", ".join(OPERATIONAL)
            raise FealError(
                f"A run's {key} cannot change on resume, only {allowed} can: start a new run for that."
            )
    if strategy_named(new.strategy).everything and new.rounds > 1:
        raise FealError(f"A run of strategy {new.strategy} has one round: start a new run for another.")
    return _with_known_names(new)


def _with_known_names(settings: Settings) -> Settings:
    MODELS.get(settings.model)
    engine = ENGINES.get(settings.engine)
    ANNOTATORS.get(settings.annotator)
    known = is_named(settings.dataset, data=settings.data) or _is_folder(settings.dataset)
    if engine.data_here and not known:
        raise no_such_dataset(settings.dataset)
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise FealError("device=cuda, but torch sees no GPU here: use device=cpu or device=auto.")
    return _with_whole_paths(settings)


def _with_known_weights(settings: Settings) -> Settings:
    """What the network starts from."""
    if settings.weights not in (NONE, IMAGENET):
        settings = settings.model_copy(update={"weights": str(whole_path(settings.weights, setting="weights="))})
    check_source(settings.model, settings.weights)
    _check_part(settings)
    return settings


def _check_part(settings: Settings) -> None:
    """Refuse a part of the network that cannot be trained alone, and what would be ignored beside it."""
    trainable = settings.training.trainable
    if trainable == "all":
        if settings.training.views != Training().views:
            raise FealError("training.views are for training.trainable=tail or head: leave them out.")
        return
    network = MODELS.get(settings.model)
    if trainable not in network.parts:
        parts = " or ".join(("all", *network.parts))
        others = ", ".join(name for name in models_for(network.task) if trainable in MODELS.get(name).parts)
        raise FealError(
            f"{settings.model} has no {trainable} that can be trained alone: set training.trainable to {parts}"
            f"{f', or take {others}' if others else ''}."
        )
    if settings.weights == NONE:
        raise FealError(
            f"training.trainable={trainable} freezes weights that nobody trained: "
            "set weights=imagenet or give a file of weights."
        )
    own = settings.transforms.model_copy(update={"normalise": "none"})
    if own != Transforms():
        raise FealError(
            f"training.trainable={trainable} trains on training.views of each image, not on transforms: "
            "leave all of them but transforms.normalise out, or set training.trainable=all."
        )


def _with_whole_paths(settings: Settings) -> Settings:
    """A run may be resumed from another folder than it was started in."""
    named = is_named(settings.dataset, data=settings.data) or not _is_folder(settings.dataset)
    dataset = settings.dataset if named else str(Path(settings.dataset).resolve())
    data = settings.data if settings.data is None else str(whole_path(settings.data, setting="data="))
    deployment = settings.deployment
    if deployment.coordinator is not None:
        whole = str(whole_path(deployment.coordinator, setting="deployment.coordinator="))
        deployment = deployment.model_copy(update={"coordinator": whole})
    return settings.model_copy(update={"dataset": dataset, "data": data, "deployment": deployment})


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _with_dataset_defaults(settings: Settings) -> Settings:
    """Settle what a synthetic data set leaves open, so that the written configuration is complete."""
    if settings.dataset not in DATASETS.names():
        return settings
    if settings.size is not None:
        told = {"synthetic.size": settings.size} if settings.synthetic.size is None else {}
        settings = build({**flatten(settings.dump()), **told, "size": None}, source="the overrides")
    own = {field.name: field.default for field in fields(DATASETS.get(settings.dataset))}
    given = settings.synthetic.model_dump()
    settled = {key: own.get(key) if value is None else value for key, value in given.items()}
    return settings.model_copy(update={"synthetic": Synthetic(**settled)})


def _with_strategy_defaults(settings: Settings) -> Settings:
    settings = settings.model_copy(update={"strategy": whole_name(settings.strategy)})
    strategy = strategy_named(settings.strategy)
    if settings.query_model is not None and settings.query_model not in strategy.query_models:
        takes = f"takes {' or '.join(strategy.query_models)}" if strategy.query_models else "takes none"
        raise FealError(
            f"Strategy {settings.strategy} {takes} as query_model, not {settings.query_model}: "
            "leave it out, or set query_model=null."
        )
    query_model = settings.query_model or next(iter(strategy.query_models), None)
    unheard_of = strategy.roles_for(query_model=query_model, selection=settings.selection) - set(get_args(Role))
    if unheard_of:
        named = ", ".join(sorted(unheard_of))
        raise FealError(
            f"Strategy {settings.strategy} wants the models {named}: there are {', '.join(get_args(Role))}."
        )
    loss = settings.loss or strategy.default_loss
    counts = settings.counts or strategy.default_counts
    settled = settings.model_copy(update={"query_model": query_model, "loss": loss, "counts": counts})
    return settled.model_copy(update=EVERYTHING) if strategy.everything else settled
