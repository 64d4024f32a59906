"""Transports: deliver messages between the coordinator and the sites."""

from feal.federation.transport.base import TRANSPORTS as TRANSPORTS
from feal.federation.transport.base import DeliveryFailure as DeliveryFailure
from feal.federation.transport.base import Transport as Transport
from feal.federation.transport.flower_deployment import FlowerDeployment as FlowerDeployment
from feal.federation.transport.flower_simulation import FlowerSimulation as FlowerSimulation
from feal.federation.transport.in_process import InProcessTransport as InProcessTransport
