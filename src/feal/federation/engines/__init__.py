"""What carries messages to sites."""

from feal.federation.engines.contract import ENGINES, Engine, Lost
from feal.federation.engines.in_process import InProcess

__all__ = ["ENGINES", "Engine", "InProcess", "Lost"]
