"""Tables and figures; reads run directories only."""

from feal.analysis.curves import Curve, Point, read_curve
from feal.analysis.discrimination import Discrimination, read_discrimination

__all__ = ["Curve", "Discrimination", "Point", "read_curve", "read_discrimination"]
