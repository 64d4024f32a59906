"""Tables and figures; reads run directories only."""

from feal.analysis.curves import Curve, Point, read_curve

__all__ = ["Curve", "Point", "read_curve"]
