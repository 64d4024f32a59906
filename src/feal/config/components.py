"""Complete the components of a configuration, such as its strategy, with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feal.annotation import ANNOTATORS
from feal.config.overrides import COMPONENTS
from feal.data import SYNTHETIC_DATASETS, find_dataset
from feal.data.locate import is_dataset_name, unknown_dataset_error
from feal.errors import FealError, unknown_name_error
from feal.evidential import LOSSES
from feal.federation.transport import TRANSPORTS
from feal.models import MODELS, find_model
from feal.plugins import parameter_fields, qualify_name, read_params
from feal.registry import Registry
from feal.selection import STRATEGIES, find_strategy
from feal.settings import Settings, nest


@dataclass(frozen=True)
class Kind:
    """A kind of component: what is registered, and how its class is found."""

    registry: Registry[Any]
    find: Callable[[str], type[Any]]


KINDS: Mapping[str, Kind] = {
    "dataset": Kind(SYNTHETIC_DATASETS, find_dataset),
    "model": Kind(MODELS, find_model),
    "strategy": Kind(STRATEGIES, find_strategy),
    "loss": Kind(LOSSES, LOSSES.get),
    "annotator": Kind(ANNOTATORS, ANNOTATORS.get),
    "transport": Kind(TRANSPORTS, TRANSPORTS.get),
}
assert tuple(KINDS) == COMPONENTS


def known_parameters(section: str | None = None) -> dict[str, str]:
    """Return the parameters of every registered class by dotted name, with their descriptions."""
    return {
        f"{kind}.{key}": text
        for kind in (COMPONENTS if section is None else (section,))
        for name in KINDS[kind].registry.names()
        for key, text in parameter_fields(KINDS[kind].registry.get(name)).items()
    }


def has_parameter(base: Mapping[str, Any], changes: Mapping[str, Any], key: str) -> bool:
    """Return whether a key is a parameter that the component named by the settings has, or no parameter."""
    section, _, parameter = key.partition(".")
    if section not in COMPONENTS:
        return True
    owner = KINDS[section].find(_name(section, base, changes))
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
        named = _name(section, base, changes)
        if named is not None:
            flat |= _completed(section, named, _below(section, base), _below(section, changes))
    return flat


def _name(section: str, base: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
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
        return KINDS["strategy"].find(_name("strategy", base, changes)).default_loss
    default = Settings.model_fields[section].get_default()
    return default.name if hasattr(default, "name") else None


def _completed(section: str, name: str, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    owner = KINDS[section].find(name)
    before = base.get("name")
    kept = {key: value for key, value in base.items() if key != "name"}
    if before is None:
        fields = parameter_fields(owner)
        known = {key.removeprefix(f"{section}.") for key in known_parameters(section)} | fields.keys()
        for key in kept:
            if key not in known:
                raise unknown_name_error(f"parameter of a {section} called", key, known)
        kept = {key: value for key, value in kept.items() if key in fields}
    elif _name(section, {f"{section}.name": before}, {}) != name:
        kept = {}
    own = {key: value for key, value in changes.items() if key != "name"}
    try:
        params = read_params(owner, {**kept, **own}, section=section, name=name)
    except FealError:
        # What is no data set has no parameters: the name is the mistake.
        if section == "dataset" and not is_dataset_name(name) and not Path(name).is_dir():
            raise unknown_dataset_error(name) from None
        raise
    values = params.model_dump(mode="json", by_alias=True)
    return {f"{section}.name": name, **{f"{section}.{key}": value for key, value in values.items()}}


def _below(section: str, flat: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{section}."
    return nest({key.removeprefix(start): value for key, value in flat.items() if key.startswith(start)})
