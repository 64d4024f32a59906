"""Every valid combination of settings with several values: `strategy=feal,random seed=0,1`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from feal.classes import short_name
from feal.config.catalogue import read_preset
from feal.config.loading import load
from feal.config.overrides import parse
from feal.errors import FealError
from feal.selection import strategy_named
from feal.settings import Settings, flatten

IN_EVERY_NAME = ("strategy", "query_model", "seed")
_OPENING, _CLOSING = "[{", "]}"


def combinations(preset: str, words: Iterable[str]) -> dict[str, Settings]:
    """Settings of every combination of the words' values, by a name for each, such as `entropy-local/seed-1`.

    A query model is for strategies that take it: the others stand once, not once for each. A name has strategy,
    query model and seed, and whatever else has several values.

    Raises:
        FealError: what `load` refuses, a setting without a value or given twice, or no valid combination.

    >>> list(combinations("demo", ["strategy=entropy,random", "query_model=global,local"]))
    ['entropy-global/seed-0', 'entropy-local/seed-0', 'random/seed-0']
    """
    values = _values(words)
    varied = [key for key, several in values.items() if len(several) > 1 and key not in IN_EVERY_NAME]
    there = [load(preset, overrides) for overrides in _valid(preset, values)]
    distinct = list({settings.identity() + str(settings.rounds): settings for settings in there}.values())
    names = [_name(settings, varied) for settings in distinct]
    often = Counter(names)
    return {
        name if often[name] == 1 else f"{name}-{settings.identity()[:6]}": settings
        for name, settings in zip(names, distinct, strict=True)
    }


def split_values(text: str) -> list[str]:
    """The values of a list with commas; those in brackets or quotes belong to a value.

    Raises:
        FealError: brackets or quotes that do not close.

    >>> split_values("[a,b],[c],'d,e',f")
    ['[a,b]', '[c]', "'d,e'", 'f']
    """
    values, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and (depth or not values[-1].strip()):
            quote = letter
        elif letter == "," and not depth:
            values.append("")
            continue
        else:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        values[-1] += letter
    if quote or depth:
        raise FealError(f"'{text}' has brackets or quotes that do not close: write them in pairs.")
    return [value.strip() for value in values]


def _values(words: Iterable[str]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if key in values:
            raise FealError(f"{key} is given twice: write all its values at once, as {key}=ONE,OTHER.")
        if not sign or not key:
            parse([word])
        several = split_values(text)
        if "" in several:
            raise FealError(f"'{word}' lacks a value: write {key}=VALUE, or several as {key}=ONE,OTHER.")
        values[key] = [parse([f"{key}={value}"])[key] for value in several]
    return values


def _valid(preset: str, values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    there = read_preset(preset)
    refused: dict[str, dict[str, Any]] = {}
    taken = set()
    for combination in product(*values.values()):
        overrides = dict(zip(values, combination, strict=True))
        name = overrides.get("strategy", there.get("strategy", Settings.model_fields["strategy"].default))
        takes = strategy_named(str(name)).query_models
        wanted = overrides.get("query_model", there.get("query_model"))
        if wanted is not None and takes and wanted not in takes:
            refused[name] = overrides
            continue
        taken.add(name)
        yield overrides if takes else {**overrides, "query_model": None}
    for name, overrides in refused.items():
        if name not in taken:
            # None of the query models is for this strategy; loading says so.
            yield overrides


def _name(settings: Settings, varied: Sequence[str]) -> str:
    effective = flatten(settings.dump())
    parts = [short_name(settings.strategy), settings.query_model or ""]
    parts += [f"{key}={_readable(effective[key])}" for key in varied]
    return "-".join(filter(None, parts)) + f"/seed-{settings.seed}"


def _readable(value: object) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "none"
