"""Pack messages into Flower's records and receive them part by part, at the coordinator and at a site."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import cast

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PullTaskInputResponse, SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker, constant
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from feal.federation.transport.base import Delivery, DeliveryFailure

RECORD = "feal"
PART = "part-"
PART_BYTES = 4 * 2**20
"""Flower sends the records of a message one by one with a timeout of three minutes each, on any connection."""
MESSAGE_TYPE = "query"
MESSAGE_TTL_SECONDS = 365 * 24 * 3600.0
DECODE_ERRORS = (KeyError, TypeError, ValueError, AttributeError)
"""Raised when records are unpacked that hold neither an `Envelope` nor a reply."""
SIGNED_METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
"""Calls that claim a task; they are signed with the secret."""


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A request with its address; `run` names the run directory at a deployed site."""

    site: str
    request: bytes
    timeout: float = 0.0
    """Seconds that the site may take; 0 means no limit."""
    run: str = ""

    def pack(self) -> RecordDict:
        """Return the records that Flower sends."""
        # Flower returns a whole number as an int, and the receiver expects a float.
        head = ConfigRecord({"site": self.site, "run": self.run, "timeout": float(self.timeout)})
        return _build_records(head, self.request)

    @staticmethod
    def unpack(content: RecordDict) -> Envelope:
        """Read an envelope from a message's records."""
        head = cast(ConfigRecord, content[RECORD])
        return Envelope(
            site=str(head["site"]),
            run=str(head["run"]),
            timeout=cast(float, head["timeout"]),
            request=_join_parts(content),
        )


def pack_reply(reply: Delivery) -> RecordDict:
    """Return the records of a reply."""
    if isinstance(reply, DeliveryFailure):
        return _build_records(ConfigRecord({"lost": reply.reason}), b"")
    return _build_records(ConfigRecord(), reply)


def unpack_reply(content: RecordDict) -> Delivery:
    """Read a reply from a message's records."""
    head = cast(ConfigRecord, content[RECORD])
    return DeliveryFailure(reason=str(head["lost"])) if "lost" in head else _join_parts(content)


def _build_records(head: ConfigRecord, content: bytes) -> RecordDict:
    """Build a message's records: its head, and the content in parts.

    Every record carries a random mark: Flower stores equal records once and deletes them with the first message.
    """
    head["mark"] = mark = secrets.token_hex(8)
    records = RecordDict({RECORD: head})
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        part = content[start : start + PART_BYTES]
        records[f"{PART}{number:06}"] = ConfigRecord({"mark": mark, "number": number, "content": part})
    return records


def _join_parts(content: RecordDict) -> bytes:
    names = sorted(name for name in content if name.startswith(PART))
    return b"".join(cast(bytes, cast(ConfigRecord, content[name])["content"]) for name in names)


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


def adopt_task(client: RuntimeHttpClient) -> PullTaskInputResponse:
    """Return a claimed task's input; Flower adds its numbers to every message of this process."""
    task = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
    TaskIdentity.node_id = task.context.node_id
    return task
