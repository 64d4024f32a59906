"""A strategy by the name that a configuration gives it."""

from __future__ import annotations

from feal.classes import class_named, short_name, whole_name
from feal.selection.contract import STRATEGIES, Strategy

__all__ = ["short_name", "strategy_named", "whole_name"]


def strategy_named(name: str) -> type[Strategy]:
    """The registered strategy of that name, or one of one's own: `module:Class` or `path/to/file.py:Class`.

    Raises:
        FealError: there is no such strategy, file, module or class, or it cannot be imported.

    >>> strategy_named("random").__name__
    'Random'
    """
    return class_named(name, registry=STRATEGIES, base=Strategy, derive="feal.selection.Strategy")
