"""What carries messages to sites."""

from feal.federation.engines.contract import ENGINES, Engine, Lost
from feal.federation.engines.flower_deployment import FlowerDeployment
from feal.federation.engines.flower_simulation import FlowerSimulation
from feal.federation.engines.in_process import InProcess

__all__ = ["ENGINES", "Engine", "FlowerDeployment", "FlowerSimulation", "InProcess", "Lost"]
