"""Read presets, and resolve one with overrides to settings whose every name exists."""

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import torch
import yaml

from feal.config.overrides import build, complete, has_parameter, spell_out
from feal.data.locate import find_dataset, is_dataset_name, unknown_dataset_error
from feal.errors import FealError, unknown_name_error
from feal.federation.closed_form import read_frozen
from feal.federation.transport import TRANSPORTS
from feal.fileio import absolute_path
from feal.metrics import find_metrics
from feal.models import MODELS, check_weights_source, find_model, list_models, list_tasks
from feal.models.encoders import NAMES as ENCODERS
from feal.models.encoders import hash_encoder
from feal.models.pretrained import IMAGENET, NONE
from feal.plugins import qualify_name
from feal.selection import Role, build_strategy, check_task, find_strategy
from feal.settings import OPERATIONAL, Component, Settings, Training, Transforms, flatten, is_operational

ABOUT = "about"
"""The key of a preset's one-line description; everything else in the file is a setting."""
OVERRIDES = "the overrides"
FULL_SUPERVISION = {"rounds": 1, "budget": "all", "max_labelled_fraction": 1.0, "initial_labels": "random"}
"""Settings of a run in which every sample is labelled at once."""


def preset_names() -> list[str]:
    """List the names of the presets that come with the package, sorted."""
    folder = resources.files("feal.config") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset, by name or by the path of a YAML file.

    Raises:
        FealError: there is no such preset or file, or it is not valid YAML.
    """
    if name in preset_names():
        text = (resources.files("feal.config") / "presets" / f"{name}.yaml").read_text()
    elif _is_true(Path(name).is_file):
        try:
            text = Path(name).read_text()
        except (OSError, UnicodeDecodeError):
            raise FealError(f"{name} cannot be read as text: give a YAML file.") from None
    elif name.endswith((".yaml", ".yml")) or "/" in name:
        raise FealError(f"There is no file {name}: check the path, or name one of {', '.join(preset_names())}.")
    else:
        raise unknown_name_error("preset", name, preset_names())
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise FealError(f"{name} is no valid YAML{line}: mend it.") from None
    if not isinstance(content, dict):
        raise FealError(f"{name} holds no settings: write KEY: VALUE lines.")
    return content


def load(preset: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a preset (a name or a YAML file) with overrides, nested or by dotted names.

    Raises:
        FealError: an unknown preset, key or name (with the nearest spelling), a wrong type or range.

    Example:
        >>> load("demo", {"seed": 1, "training.lr": 1e-3, "strategy.tau": 0.9}).strategy.params["tau"]
        0.9
    """
    base, changes = _spell_out(preset, overrides or {})
    # Checked alone first, so that a mistake in the file is not blamed on the command line.
    build(complete(base, {}), source=f"preset {preset}")
    settings = _resolve(complete(base, changes))
    if settings.weights_digest is not None:
        raise FealError("weights_digest is recorded when a run starts: leave it out.")
    weights = settings.weights
    if weights not in (NONE, IMAGENET):
        weights = str(absolute_path(weights, setting="weights="))
    check_weights_source(settings.model.name, weights)
    settings = _resolve_frozen(settings)
    if not find_model(settings.model.name).has_encoder:
        _check_trainable(settings.model.name, weights, settings.training, settings.transforms)
    strategy = build_strategy(settings.strategy)
    unknown = strategy.required_roles() - set(get_args(Role))
    if unknown:
        roles = ", ".join(get_args(Role))
        raise FealError(
            f"Strategy {settings.strategy.name} needs the models {', '.join(sorted(unknown))}: there are {roles}."
        )
    tasks = list_tasks(find_model(settings.model.name))
    if len(tasks) == 1:
        check_task(strategy, tasks[0], name=settings.strategy.name)
    scope = settings.class_count_scope or strategy.default_class_count_scope
    settled = settings.model_copy(update={"weights": weights, "class_count_scope": scope})
    return settled.model_copy(update=FULL_SUPERVISION) if strategy.is_full_supervision else settled


def applicable(preset: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides without parameters that the component they would apply to does not have.

    Raises:
        FealError: an unknown preset, key or name.

    >>> applicable("demo", {"strategy": "random", "strategy.tau": 0.9, "seed": 1})
    {'strategy': 'random', 'seed': 1}
    """
    base, changes = _spell_out(preset, overrides)
    lacking = {key for key in changes if not has_parameter(base, changes, key)}
    return {key: value for key, value in overrides.items() if key not in lacking}


def revise(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return a run's settings with other operational ones, by dotted names.

    Raises:
        FealError: a setting that decides what the run computes, an unknown one, a wrong type or range.

    Example:
        >>> revise(load("demo"), {"rounds": 9}).rounds
        9
    """
    changed = spell_out(changes, source=OVERRIDES)
    flat = complete(flatten(settings.dump()), changed)
    for key in changed:
        if not is_operational(key):
            allowed = ", ".join(OPERATIONAL)
            raise FealError(
                f"A run's {key.removesuffix('.name')} cannot change on resume, only {allowed} can: "
                "start a new run for that."
            )
    new = _resolve(flat)
    if find_strategy(new.strategy.name).is_full_supervision and new.rounds > 1:
        raise FealError(f"A run of strategy {new.strategy.name} has one round: start a new run for another.")
    return new


def _spell_out(preset: str, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a preset and the overrides, by dotted names."""
    content = {key: value for key, value in read_preset(preset).items() if key != ABOUT}
    return spell_out(content, source=f"preset {preset}"), spell_out(overrides, source=OVERRIDES)


def _resolve(flat: Mapping[str, Any]) -> Settings:
    """Build settings whose paths are absolute, for a resume elsewhere, and check what this machine must have."""
    settings = build(flat, source=OVERRIDES)
    name, transport = settings.transport.name, TRANSPORTS.get(settings.transport.name)
    if settings.round_timeout is not None and not transport.has_timeout:
        others = " or ".join(other for other in TRANSPORTS.names() if TRANSPORTS.get(other).has_timeout)
        raise FealError(
            f"transport={name} cannot stop a site that takes too long, so it takes no round_timeout: "
            f"use transport={others}, or set round_timeout=null."
        )
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise FealError("device=cuda, but torch sees no GPU here: use device=cpu or device=auto.")
    metrics = tuple(qualify_name(name) for name in settings.metrics)
    tasks = list_tasks(find_model(settings.model.name))
    params = dict(settings.metric)
    if len(tasks) == 1:  # that of a model for both tasks is known once the sites have joined
        computed = find_metrics(tasks[0], metrics, settings.metric)
        params = {metric.name: metric.params.model_dump(mode="json", by_alias=True) for metric in computed}
    data = None if settings.data is None else str(absolute_path(settings.data, setting="data="))
    return settings.model_copy(
        update={
            "dataset": _resolve_dataset(settings.dataset, settings.data, has_data=transport.data_here),
            "data": data,
            "metrics": metrics,
            "metric": {name: values for name, values in params.items() if values},
            "transport": _resolve_path(settings.transport, "transport.coordinator"),
        }
    )


def _resolve_dataset(dataset: Component, data: str | None, *, has_data: bool) -> Component:
    """Return the data set with absolute paths; where this machine has the data, it must exist."""
    name = dataset.name
    is_known = find_dataset(name).is_generated or is_dataset_name(name, data=data)
    is_folder = not is_known and _is_true(Path(name).is_dir)
    if has_data and not is_known and not is_folder:
        raise unknown_dataset_error(name)
    if is_folder:
        dataset = dataset.model_copy(update={"name": str(Path(name).resolve())})
    return _resolve_path(dataset, "dataset.source")


def _resolve_path(component: Component, key: str) -> Component:
    """Return the component with an absolute path as the parameter of that dotted name."""
    name = key.partition(".")[2]
    path = component.params.get(name)
    if path is None:
        return component
    return component.model_copy(update={name: str(absolute_path(path, setting=f"{key}="))})


def _is_true(check: Callable[[], bool]) -> bool:
    """Return whether a check of a path holds; one that cannot be a path fails it."""
    try:
        return check()
    except (OSError, ValueError):
        return False


def _resolve_frozen(settings: Settings) -> Settings:
    """Return settings of `model=frozen` with the encoder's path absolute and with what follows from the head.

    Raises:
        FealError: there is no such encoder here, or a setting would have no effect.
    """
    params = read_frozen(settings.model)
    if params is None:
        if settings.initial_labels not in ("random", "dataset"):
            raise FealError(
                f"initial_labels={settings.initial_labels} needs features before anything is trained: "
                "set model=frozen, or initial_labels=random."
            )
        return settings
    if settings.weights != NONE:
        raise FealError("model=frozen takes its weights from model.encoder: leave weights out.")
    if settings.transforms != Transforms():
        raise FealError("model=frozen looks at whole images and normalises them itself: leave transforms out.")
    if settings.training.trainable == "tail" or settings.training.views not in (1, Training().views):
        raise FealError("model=frozen trains its head on one view of each image: leave trainable and views out.")
    model = settings.model
    if params.encoder not in ENCODERS and TRANSPORTS.get(settings.transport.name).data_here:
        model = _resolve_path(model, "model.encoder")
        params = params.model_copy(update={"encoder": model.params["encoder"]})
    if TRANSPORTS.get(settings.transport.name).data_here:
        hash_encoder(params)
    training = settings.training.model_copy(update={"trainable": "head", "views": 1})
    update: dict[str, Any] = {"model": model, "training": training}
    if params.head == "ridge":
        update["communication_rounds"] = 1
    return settings.model_copy(update=update)


def _check_trainable(name: str, weights: str, training: Training, transforms: Transforms) -> None:
    """Refuse a part of the network that cannot be trained alone, and settings that would have no effect then."""
    trainable = training.trainable
    if trainable == "all":
        if training.views != Training().views:
            raise FealError("training.views are for training.trainable=tail or head: leave them out.")
        return
    network = find_model(name)
    if trainable not in network.trainable_parts:
        parts = " or ".join(("all", *network.trainable_parts))
        others = ", ".join(
            other for other in list_models(network.task) if trainable in MODELS.get(other).trainable_parts
        )
        raise FealError(
            f"{name} has no {trainable} that can be trained alone: set training.trainable to {parts}"
            f"{f', or take {others}' if others else ''}."
        )
    if weights == NONE:
        raise FealError(
            f"training.trainable={trainable} freezes weights that were never trained: "
            "set weights=imagenet or give a file of weights."
        )
    usual: dict[str, object] = {"normalise": "none"}
    allowed = "transforms.normalise"
    if network.task == "classification":
        allowed += " and a crop of the centre"
        if transforms.crop_rule == "centre":
            usual |= Transforms().model_dump(include={"crop", "crop_rule"})
    if transforms.model_copy(update=usual) != Transforms():
        raise FealError(
            f"training.trainable={trainable} trains on training.views of each image, not on transforms: "
            f"leave all of them but {allowed} out, or set training.trainable=all."
        )
