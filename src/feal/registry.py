"""Register classes by name, and give each its parameters: strategies, losses, networks, data sets, transports."""

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from feal.errors import unknown_name_error

_T = TypeVar("_T")


class Parameters(BaseModel):
    """Declare the parameters of a class: unknown ones are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


class Configurable:
    """Take parameters from the configuration; a subclass declares its own in a nested `Params`.

    >>> class Circle(Configurable):
    ...     class Params(Configurable.Params):
    ...         radius: float = 1.0
    ...     params: Params
    >>> Circle().params.radius, Circle(radius=2).params.radius, Circle(Circle.Params(radius=3)).params.radius
    (1.0, 2.0, 3.0)
    """

    class Params(Parameters):
        """No parameters."""

    params: Params

    def __init__(self, params: Parameters | None = None, /, **values: Any) -> None:
        self.params = self.Params(**values) if params is None else params  # type: ignore[assignment]


class Registry(Generic[_T]):
    """Names of one kind and what stands behind them.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("round", summary="a circle")
    ... class Round: ...
    >>> shapes.get("round").__name__, shapes.names(), shapes.summary("round")
    ('Round', ['round'], 'a circle')
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, _T] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, *, summary: str) -> Callable[[_T], _T]:
        """Decorate the entry to be known under `name`; `summary` is its line in `feal list`."""

        def add(entry: _T) -> _T:
            if name in self._entries and not _same_source(self._entries[name], entry):
                raise ValueError(f"two {self.kind} entries are called {name!r}")
            self._entries[name] = entry
            self._summaries[name] = summary
            return entry

        return add

    def get(self, name: str) -> _T:
        """Return the entry of that name; an unknown one is a `FealError` with the nearest spelling."""
        if name not in self._entries:
            raise unknown_name_error(self.kind, name, self._entries)
        return self._entries[name]

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)

    def summary(self, name: str) -> str:
        """Return the line that describes an entry."""
        return self._summaries[name]


def _same_source(one: object, other: object) -> bool:
    """Whether two entries are the same source, run twice: imported and loaded by path, or a notebook's cell."""
    if getattr(one, "__qualname__", 1) != getattr(other, "__qualname__", 2):
        return False
    modules = [str(getattr(entry, "__module__", "")) for entry in (one, other)]
    files = [getattr(sys.modules.get(module), "__file__", None) for module in modules]
    return modules[0] == modules[1] or (files[0] is not None and files[0] == files[1])
