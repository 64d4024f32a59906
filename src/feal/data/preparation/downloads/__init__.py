"""One data set a file; importing this package registers them all."""

from feal.data.preparation.registry import DOWNLOADS

__all__ = ["DOWNLOADS"]
