"""Read settings by dotted names, `training.lr=1e-3 strategy=feal strategy.tau=0.9`, and complete components."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from feal.annotation import ANNOTATORS
from feal.data import SYNTHETIC_DATASETS, find_dataset
from feal.data.locate import is_dataset_name, unknown_dataset_error
from feal.errors import FealError, unknown_name_error
from feal.evidential import LOSSES
from feal.federation.transport import TRANSPORTS
from feal.metrics import METRICS
from feal.models import MODELS, find_model
from feal.plugins import invalid_value_error, parameter_fields, qualify_name, read_params
from feal.registry import Registry
from feal.selection import STRATEGIES, find_strategy
from feal.settings import Section, Settings, flatten, nest


class ComponentKind(NamedTuple):
    """A kind of component: what is registered, and how its class is found."""

    registry: Registry[Any]
    find: Callable[[str], type[Any]]


COMPONENTS: Mapping[str, ComponentKind] = {
    "dataset": ComponentKind(SYNTHETIC_DATASETS, find_dataset),
    "model": ComponentKind(MODELS, find_model),
    "strategy": ComponentKind(STRATEGIES, find_strategy),
    "loss": ComponentKind(LOSSES, LOSSES.get),
    "annotator": ComponentKind(ANNOTATORS, ANNOTATORS.get),
    "transport": ComponentKind(TRANSPORTS, TRANSPORTS.get),
}
"""Settings that name a class, whose parameters follow below them."""
METRIC = "metric"
"""The setting with the parameters of all metrics, each below its name."""

RENAMED = {
    "engine": "transport",
    "query_model": "strategy.query_model",
    **{
        f"selection.{key}": f"strategy.{key}"
        for key in ["n", "tau", "rule", "calibration", "terms", "scope", "local"]
    },
    **{
        f"evidence.{key}": f"loss.{key}"
        for key in ["lambda", "activation", "annealing", "squared", "class_weight"]
    },
    **{f"synthetic.{key}": f"dataset.{key}" for key in ["seed", "sites", "train", "test", "size", "classes"]},
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


class _ValueLoader(yaml.SafeLoader):
    """Read YAML, and 1e-3 as a number, which YAML takes for a word since it has no point."""


_ValueLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_value(text: str) -> Any:
    """Read a value as YAML.

    Raises:
        yaml.YAMLError, ValueError: the text is not valid.

    >>> read_value("[1e-3, two]")
    [0.001, 'two']
    """
    return yaml.load(text, _ValueLoader)


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
            result[key] = read_value(value)
        except (yaml.YAMLError, ValueError):
            raise FealError(f"The value of '{word}' cannot be read: put quotes around it.") from None
    return result


def known_keys() -> dict[str, str]:
    """Return every dotted name of the schema with its description; components have their parameters besides."""
    keys: dict[str, str] = {}
    for name, field in Settings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            keys |= {f"{name}.{key}": part.description or "" for key, part in inner.model_fields.items()}
        else:
            keys[name] = field.description or ""
    return keys


def known_parameters(section: str | None = None) -> dict[str, str]:
    """Return the parameters of every registered class by dotted name, with their descriptions."""
    parameters = {
        f"{kind}.{key}": text
        for kind in (COMPONENTS if section is None else (section,))
        for name in COMPONENTS[kind].registry.names()
        for key, text in parameter_fields(COMPONENTS[kind].registry.get(name)).items()
    }
    return parameters if section else {**parameters, **metric_parameters()}


def metric_parameters() -> dict[str, str]:
    """Return the parameters of every registered metric by dotted name, with their descriptions."""
    return {
        f"{METRIC}.{name}.{key}": text
        for name in METRICS.names()
        for key, text in parameter_fields(METRICS.get(name)).items()
    }


def spell_out(values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """Return settings by dotted names, the short `strategy: feal` as `strategy.name`.

    Args:
        values: nested, by dotted names, or both.
        source: what to call them in messages.

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
        first, *rest = key.split(".")
        if first == METRIC and len(rest) != 2:
            raise FealError(
                f"'{key}={value}' in {source} is no parameter of a metric: write metric.METRIC.PARAMETER=VALUE."
            )
        if key not in known and first not in (METRIC, *COMPONENTS):
            for parameter in known_parameters():
                if parameter.endswith(f".{key}"):
                    raise FealError(f"There is no setting '{key}' in {source}: did you mean '{parameter}'?")
            raise unknown_name_error(f"setting in {source} called", key, known)
        flat[f"{key}.name" if key in COMPONENTS else key] = value
    return flat


def build(flat: Mapping[str, Any], *, source: str) -> Settings:
    """Return validated settings from dotted names; a mistake is one sentence with the key and what it takes."""
    try:
        return Settings.model_validate(nest(flat))
    except ValidationError as error:
        raise invalid_value_error(error, flat, known_keys(), source=f" in {source}") from None


def has_parameter(base: Mapping[str, Any], changes: Mapping[str, Any], key: str) -> bool:
    """Return whether a key is a parameter that the component named by the settings has, or no parameter."""
    section, _, parameter = key.partition(".")
    if section not in COMPONENTS:
        return True
    owner = COMPONENTS[section].find(_find_name(section, base, changes))
    return parameter.partition(".")[0] in ("name", *parameter_fields(owner))


def complete(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted names with changes, every component with all of its parameters.

    Parameters that `base` has for another class than the one that is named now do not apply. Those that it has
    without naming a class apply to any class that has them.

    Raises:
        FealError: no such class or parameter, or a value that is not valid.

    >>> flat = complete({"strategy.name": "feal", "strategy.tau": 0.5}, {"strategy.name": "entropy"})
    >>> [key for key in flat if key.startswith("strategy")]
    ['strategy.name', 'strategy.query_model']
    """
    flat = {key: value for key, value in {**base, **changes}.items() if key.partition(".")[0] not in COMPONENTS}
    for section in COMPONENTS:
        name = _find_name(section, base, changes)
        if name is not None:
            values = {**_inherit(section, name, _below(section, base)), **_below(section, changes)}
            values.pop("name", None)
            params = _read_params(section, name, values).model_dump(mode="json", by_alias=True)
            flat |= {f"{section}.name": name, **{f"{section}.{key}": value for key, value in params.items()}}
    return flat


def _find_name(section: str, base: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """Return the name of a component: as changed, as it was, or its default; a loss's is the strategy's."""
    key = f"{section}.name"
    given = changes.get(key, base.get(key))
    if given is not None and not isinstance(given, str):
        raise FealError(
            f"{section}={given} is not valid: give a name ({Settings.model_fields[section].description})."
        )
    if given is not None:
        return qualify_name(given) if section in ("strategy", "model", "dataset") else given
    if section == "loss":
        return COMPONENTS["strategy"].find(_find_name("strategy", base, changes)).default_loss
    return getattr(Settings.model_fields[section].get_default(), "name", None)


def _inherit(section: str, name: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return those parameters of a preset that apply to a class."""
    if base.get("name") is not None:
        return dict(base) if _find_name(section, {f"{section}.name": base["name"]}, {}) == name else {}
    fields = parameter_fields(COMPONENTS[section].find(name))
    known = {key.removeprefix(f"{section}.") for key in known_parameters(section)} | fields.keys()
    for key in base:
        if key not in known:
            raise unknown_name_error(f"parameter of a {section} called", key, known)
    return {key: value for key, value in base.items() if key in fields}


def _read_params(section: str, name: str, values: Mapping[str, Any]) -> Any:
    owner = COMPONENTS[section].find(name)
    try:
        return read_params(owner, values, section=section, name=name)
    except FealError:
        # What is no data set has no parameters: the name is the mistake.
        if section == "dataset" and not is_dataset_name(name) and not Path(name).is_dir():
            raise unknown_dataset_error(name) from None
        raise


def _below(section: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{section}."
    return nest({key.removeprefix(start): value for key, value in flat.items() if key.startswith(start)})
