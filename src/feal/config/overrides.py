"""Read settings by dotted names: `training.lr=1e-3 strategy=feal strategy.tau=0.9`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from feal.errors import FealError, unknown_name_error
from feal.plugins import wanted
from feal.settings import Settings, flatten, nest

COMPONENTS = ("dataset", "model", "strategy", "loss", "annotator", "transport")
"""Settings that name a class, whose parameters follow below them."""

RENAMED = {
    "engine": "transport",
    "query_model": "strategy.query_model",
    **{f"selection.{key}": f"strategy.{key}" for key in ("n", "tau", "rule", "calibration", "terms")},
    **{f"selection.{key}": f"strategy.{key}" for key in ("scope", "local")},
    **{
        f"evidence.{key}": f"loss.{key}"
        for key in ("lambda", "activation", "annealing", "squared", "class_weight")
    },
    **{f"synthetic.{key}": f"dataset.{key}" for key in ("seed", "sites", "train", "test", "size", "classes")},
    "synthetic.given": "dataset.labelled_fraction",
    "size": "dataset.size",
    "simulation.workers": "transport.workers",
    "simulation.address": "transport.address",
    "deployment.coordinator": "transport.coordinator",
    "deployment.patience": "transport.patience",
    "annotation.min_share": "annotator.min_share",
    "annotation.poll_seconds": "annotator.poll_seconds",
    "cap": "max_labelled_fraction",
    "counts": "class_count_scope",
    "share_counts": "share_class_counts",
    "initial": "initial_labels",
}
"""Earlier names of settings, and what they are called now."""

# YAML takes 1e-3 for a word, since it has no point.
_SCIENTIFIC = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


def parse(words: Iterable[str]) -> dict[str, Any]:
    """Return the words of a command line as dotted names and values, each value read as YAML.

    >>> parse(["seed=1", "training.lr=1e-3", "strategy=random"])
    {'seed': 1, 'training.lr': 0.001, 'strategy': 'random'}
    """
    result: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise FealError(f"'{word}' is no setting: write KEY=VALUE, for example training.lr=1e-3.")
        try:
            result[key] = float(value) if _SCIENTIFIC.fullmatch(value) else yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):
            raise FealError(f"The value of '{word}' cannot be read: put quotes around it.") from None
    return result


def known_keys(section: type[BaseModel] = Settings, prefix: str = "") -> dict[str, str]:
    """Return every dotted name of the schema with its description; components have their parameters besides."""
    keys: dict[str, str] = {}
    for name, field in section.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        if (
            key not in COMPONENTS
            and isinstance(field.annotation, type)
            and issubclass(field.annotation, BaseModel)
        ):
            keys |= known_keys(field.annotation, f"{key}.")
        else:
            keys[key] = field.description or ""
    return keys


def spell_out(values: Mapping[str, Any], *, source: str, parameters: Iterable[str] = ()) -> dict[str, Any]:
    """Return settings by dotted names, the short `strategy: feal` as `strategy.name`.

    Args:
        values: nested, by dotted names, or both.
        source: what to call them in messages.
        parameters: dotted names of parameters, to suggest where one is written without its component.

    Raises:
        FealError: a name that does not exist, with the nearest spelling, or an earlier name.

    >>> spell_out({"strategy": "feal", "training": {"lr": 0.1}}, source="the example")
    {'strategy.name': 'feal', 'training.lr': 0.1}
    """
    known = known_keys()
    flat: dict[str, Any] = {}
    for key, value in flatten(values).items():
        if key in RENAMED:
            now = RENAMED[key]
            raise FealError(f"'{key}' in {source} is called {now} now: write {now}={value}.")
        section = key.partition(".")[0]
        if key not in known and not (section in COMPONENTS and section != key):
            near = [name for name in parameters if name.endswith(f".{key}")]
            if near:
                raise FealError(f"There is no setting '{key}' in {source}: did you mean '{near[0]}'?")
            raise unknown_name_error(f"setting in {source} called", key, known)
        flat[f"{key}.name" if key in COMPONENTS else key] = value
    return flat


def build(flat: Mapping[str, Any], *, source: str) -> Settings:
    """Return validated settings from dotted names; a mistake is one sentence with the key and what it takes."""
    try:
        return Settings.model_validate(nest(flat))
    except ValidationError as error:
        raise _sentence(error, known_keys(), source) from None


def _sentence(error: ValidationError, descriptions: Mapping[str, str], source: str) -> FealError:
    """One sentence for the first key at fault; a key of several types lists what each would take."""
    first = error.errors()[0]
    key = _key(first["loc"], descriptions)
    if first["type"] == "missing":
        return FealError(f"'{key}' is missing in {source}: add it ({descriptions[key]}).")
    kinds = [wanted(entry) for entry in error.errors() if _key(entry["loc"], descriptions) == key]
    takes = " or ".join(dict.fromkeys(kinds))
    return FealError(f"{key}={first['input']} in {source} is not valid: it {takes} ({descriptions[key]}).")


def _key(location: tuple[int | str, ...], descriptions: Mapping[str, str]) -> str:
    for length in range(len(location), 0, -1):
        key = ".".join(str(part) for part in location[:length])
        if key in descriptions:
            return key
    return ".".join(map(str, location))
