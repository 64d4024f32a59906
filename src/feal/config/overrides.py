"""Settings by dotted names: `training.lr=1e-3`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from feal.errors import FealError, unknown
from feal.settings import Settings

# YAML takes 1e-3 for a word, since it has no point.
_SCIENTIFIC = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


def parse(words: Iterable[str]) -> dict[str, Any]:
    """The words of a command line as dotted names and values, each value read as YAML.

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
    """Every dotted name there is, with its description."""
    keys: dict[str, str] = {}
    for name, field in section.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys |= known_keys(field.annotation, f"{key}.")
        else:
            keys[key] = field.description or ""
    return keys


def build(flat: Mapping[str, Any], *, source: str) -> Settings:
    """Validated settings from dotted names; a mistake is one sentence with the key and what it takes."""
    descriptions = known_keys()
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        if key not in descriptions:
            raise unknown(f"setting in {source} called", key, descriptions)
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise _sentence(error, descriptions, source) from None


def _sentence(error: ValidationError, descriptions: Mapping[str, str], source: str) -> FealError:
    """One sentence for the first key at fault; a key of several types lists what each would take."""
    first = error.errors()[0]
    key = _key(first["loc"], descriptions)
    if first["type"] == "missing":
        return FealError(f"'{key}' is missing in {source}: add it ({descriptions[key]}).")
    wanted = [_wanted(entry) for entry in error.errors() if _key(entry["loc"], descriptions) == key]
    takes = " or ".join(dict.fromkeys(wanted))
    return FealError(f"{key}={first['input']} in {source} is not valid: it {takes} ({descriptions[key]}).")


def _key(location: tuple[int | str, ...], descriptions: Mapping[str, str]) -> str:
    for length in range(len(location), 0, -1):
        key = ".".join(str(part) for part in location[:length])
        if key in descriptions:
            return key
    return ".".join(map(str, location))


def _wanted(entry: ErrorDetails) -> str:
    """What pydantic would have taken, to go on after 'it'."""
    if entry["type"] == "too_short":
        return "should name at least one"
    return entry["msg"].removeprefix("Input ")
