"""What takes on a task of Flower's and keeps it, at the coordinator and at a site."""

from __future__ import annotations

import httpx
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

SIGNED = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""Calls that a task is claimed by; whoever makes them must know the secret."""


def claimant(secret: str) -> list[ProtobufClientInterceptor]:
    """What makes calls those of one who may claim tasks."""
    return [
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret.encode(), protected_methods=SIGNED),
    ]


def keep_alive(client: RuntimeHttpClient) -> HeartbeatSender:
    """Say from time to time, in the background, that a claimed task is being worked on."""

    def beat() -> bool:
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError:
            return False
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    return sender
