"""Transports: deliver messages between the coordinator and the sites."""

from feal.federation.transport.base import TRANSPORTS, DeliveryFailure, Transport
from feal.federation.transport.flower_deployment import FlowerDeployment
from feal.federation.transport.flower_simulation import FlowerSimulation
from feal.federation.transport.in_process import InProcessTransport

__all__ = [
    "TRANSPORTS",
    "DeliveryFailure",
    "FlowerDeployment",
    "FlowerSimulation",
    "InProcessTransport",
    "Transport",
]
