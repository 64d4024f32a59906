"""Every valid combination of settings with several values: `strategy=feal,random seed=0,1`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from feal.classes import short_name
from feal.config.catalogue import read_preset
from feal.config.loading import load
from feal.config.overrides import parse
from feal.errors import FealError, unknown
from feal.selection import strategy_named
from feal.selection.heeding import unheeded
from feal.settings import QueryModel, Settings, flatten

IN_EVERY_NAME = ("strategy", "query_model", "seed")
_OPENING, _CLOSING = "[{", "]}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs of a sweep by a name for each, and what became of other combinations."""

    runs: Mapping[str, Settings]
    notes: tuple[str, ...] = ()


def combinations(preset: str, words: Iterable[str]) -> dict[str, Settings]:
    """Settings of every combination of the words' values, by a name for each, such as `entropy-local/seed-1`.

    What a run does not heed it has once, as the preset has it, not once for each value: a query model is for
    strategies that take it, `selection.n` for those that look at neighbours. A name has strategy, query model and
    seed, and whatever else has several values.

    Raises:
        FealError: what `load` refuses, a setting without a value or given twice, or no valid combination.

    >>> list(combinations("demo", ["strategy=entropy,random", "query_model=global,local", "selection.n=3,5"]))
    ['entropy-global/seed-0', 'entropy-local/seed-0', 'random/seed-0']
    """
    return dict(planned(preset, words).runs)


def planned(preset: str, words: Iterable[str]) -> Plan:
    """All runs of a sweep, see `combinations`, and what became of other combinations."""
    values = _values(words)
    valid, refused = _valid(preset, values)
    once = {choice.settings.identity() + str(choice.settings.rounds): choice for choice in valid}.values()
    varied = [key for key, several in values.items() if len(several) > 1 and key not in IN_EVERY_NAME]
    names = [_name(choice.settings, [key for key in varied if key not in choice.spare]) for choice in once]
    often = Counter(names)
    runs = {
        name if often[name] == 1 else f"{name}-{choice.settings.identity()[:6]}": choice.settings
        for name, choice in zip(names, once, strict=True)
    }
    return Plan(runs=runs, notes=(*_shared(valid), *_left_out(refused)))


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


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """A valid combination."""

    overrides: Mapping[str, Any]
    settings: Settings
    spare: frozenset[str]
    """Settings with several values that it does not heed: they are as the preset has them."""


_Refused = tuple[Mapping[str, Any], FealError]


def _valid(preset: str, values: Mapping[str, Sequence[Any]]) -> tuple[list[_Choice], list[_Refused]]:
    """Valid combinations, and the others with the reason.

    Raises:
        FealError: a value that is valid in no combination is a mistake.
    """
    for model in values.get("query_model", ()):
        # A strategy that takes none would not look at it.
        if model is not None and model not in get_args(QueryModel):
            raise unknown("query_model", str(model), get_args(QueryModel))
    varied = frozenset(key for key, several in values.items() if len(several) > 1)
    valid: list[_Choice] = []
    refused: list[_Refused] = []
    for combination in product(*values.values()):
        overrides = dict(zip(values, combination, strict=True))
        try:
            valid.append(_choice(preset, overrides, varied))
        except FealError as error:
            refused.append((overrides, error))
    used = {(key, repr(value)) for choice in valid for key, value in choice.overrides.items()}
    for attempt, reason in refused:
        # Which query models there are depends on the strategy, which has a combination then.
        if any((key, repr(value)) not in used for key, value in attempt.items() if key != "query_model"):
            raise reason
    return valid, refused


def _choice(preset: str, overrides: Mapping[str, Any], varied: frozenset[str]) -> _Choice:
    default = read_preset(preset).get("strategy", Settings.model_fields["strategy"].default)
    takes_none = not strategy_named(str(overrides.get("strategy", default))).query_models
    asked = {"query_model": None} if takes_none else {}
    settings = load(preset, {**overrides, **asked})
    spare = varied & unheeded(settings)
    if spare:
        kept = {key: value for key, value in overrides.items() if key not in spare}
        settings = load(preset, {**kept, **asked})
    return _Choice(overrides=overrides, settings=settings, spare=spare | (varied & asked.keys()))


def _shared(valid: Sequence[_Choice]) -> list[str]:
    """A sentence for strategies that run once for all values of a setting."""
    ignoring: dict[str, dict[str, None]] = {}
    for choice in valid:
        loss = choice.settings.loss if "loss" in choice.overrides else None
        name = " ".join(filter(None, (short_name(choice.settings.strategy), loss)))
        for key in sorted(choice.spare):
            ignoring.setdefault(key, {})[name] = None
    alike: dict[str, list[str]] = {}
    for key, strategies in ignoring.items():
        alike.setdefault(", ".join(strategies), []).append(key)
    return [
        f"{names}: once for all values of {', '.join(keys)}, which change nothing."
        for names, keys in alike.items()
    ]


def _left_out(refused: Sequence[_Refused]) -> list[str]:
    if not refused:
        return []
    (first, error), count = refused[0], len(refused)
    words = " ".join(f"{key}={_readable(value)}" for key, value in first.items())
    are = "combination is" if count == 1 else "combinations are"
    return [f"{count} {are} left out as not valid, such as {words}: {error}"]


def _name(settings: Settings, varied: Sequence[str]) -> str:
    effective = flatten(settings.dump())
    parts = [short_name(settings.strategy), settings.query_model or ""]
    parts += [f"{key}={_readable(effective[key])}" for key in varied]
    return "-".join(filter(None, parts)) + f"/seed-{settings.seed}"


def _readable(value: object) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "none"
