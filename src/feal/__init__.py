"""Federated evidential active learning."""

from feal.version import VERSION as __version__

__all__ = ["__version__"]
