"""The loop over sites: coordinator, messages, engines, and what one site does."""

from feal.federation.aggregation import fedavg

__all__ = ["fedavg"]
