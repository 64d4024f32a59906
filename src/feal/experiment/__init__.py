"""One run directory, resumable at any moment."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feal.experiment.run import Result, resume, start

__all__ = ["Result", "resume", "start"]


def __getattr__(name: str) -> Any:
    # Whoever only reads run directories need not wait for torch.
    if name in __all__:
        return getattr(import_module("feal.experiment.run"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
