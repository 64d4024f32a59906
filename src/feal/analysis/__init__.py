"""Tables and figures; reads run directories only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feal.analysis.arms import Curve, Point, read_curve

if TYPE_CHECKING:
    from feal.analysis.discrimination import Discrimination, read_discrimination

__all__ = ["Curve", "Discrimination", "Point", "read_curve", "read_discrimination"]


def __getattr__(name: str) -> Any:
    # It looks at pictures' logits with torch, which those who read figures need not wait for.
    if name in ("Discrimination", "read_discrimination"):
        return getattr(import_module("feal.analysis.discrimination"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
