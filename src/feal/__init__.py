"""Federated evidential active learning: hospitals train one model together and label only the images worth it.

The names here are stable; docs/api.md shows each at work. Nothing heavy is imported before it is used.

>>> import feal
>>> result = feal.run("demo", strategy="random", rounds=2, out="runs/first")  # doctest: +SKIP
>>> result.rounds[-1].metrics["balanced_accuracy"].mean                       # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feal.errors import FealError

if TYPE_CHECKING:
    from feal.analysis.runs import open_run
    from feal.analysis.tables import compare
    from feal.experiment.run import resume, run
    from feal.experiment.sweep import sweep
    from feal.inference.model import load_model
    from feal.selection.base import Strategy
    from feal.selection.standalone import select
    from feal.settings import Settings

__all__ = [
    "FealError",
    "Settings",
    "Strategy",
    "__version__",
    "compare",
    "load_model",
    "open_run",
    "resume",
    "run",
    "select",
    "sweep",
]
__version__ = "0.1.0"

_MODULES = {
    "Settings": "feal.settings",
    "Strategy": "feal.selection.base",
    "compare": "feal.analysis.tables",
    "load_model": "feal.inference.model",
    "open_run": "feal.analysis.runs",
    "resume": "feal.experiment.run",
    "run": "feal.experiment.run",
    "select": "feal.selection.standalone",
    "sweep": "feal.experiment.sweep",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'feal' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
