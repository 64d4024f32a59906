"""Claim a Flower task, keep it alive and receive its messages, at the coordinator and at a site."""

from __future__ import annotations

from typing import cast

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient

SIGNED_METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""Calls that claim a task; they are signed with the secret."""


class IncomingMessage:
    """An announced message whose parts arrive over time.

    Flower's own function blocks until the last part is there, for hours if need be; `receive` returns at once.
    """

    def __init__(self, client: RuntimeHttpClient, tree: ObjectTree, *, node: Node, run: int) -> None:
        self._client = client
        self._tree = tree
        self._node = node
        self._run = run
        self._pull = make_pull_object_fn_protobuf(client.PullObject, node, run)
        self._missing = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
        self._parts: dict[str, bytes] = {}

    def receive(self) -> Message | None:
        """Return the message once it is complete, None before.

        Raises:
            ObjectPullError: a part is lost.
        """
        try:
            while self._missing:
                self._parts[self._missing[-1]] = self._pull(self._missing[-1])
                self._missing.pop()
        except ObjectUnavailableError:
            return None
        number = self._tree.object_id
        confirmed = ConfirmMessageReceivedRequest(node=self._node, run_id=self._run, message_object_id=number)
        self._client.ConfirmMessageReceived(confirmed)
        message = cast(Message, inflate_object_from_contents(number, self._parts))
        message.metadata.__dict__["_message_id"] = number  # the number is not part of the message
        return message


def make_claim_interceptors(secret: str) -> list[ProtobufClientInterceptor]:
    """Return the interceptors that sign calls which claim tasks."""
    return [
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret.encode(), protected_methods=SIGNED_METHODS),
    ]


def make_retry_invoker() -> RetryInvoker:
    """Retry a call whose idle connection the server has just closed."""
    return RetryInvoker(
        wait_gen_factory=lambda: constant(0.1),
        recoverable_exceptions=httpx.RemoteProtocolError,
        max_tries=3,
        max_time=None,
        jitter=None,
    )


def start_heartbeat(client: RuntimeHttpClient) -> HeartbeatSender:
    """Send heartbeats for a claimed task from a background thread."""

    def beat() -> bool:
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.HTTPError:
            return False
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    return sender
