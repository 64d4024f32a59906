"""Pass messages from the SuperNode to the site's worker process, and its replies back.

Flower would start a process for every message and run the code that the coordinator sent. Here the site runs only
the code that it installed itself.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import dataclass

from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.deploy.addresses import LOOPBACK, bypass_proxy
from feal.federation.transport.deploy.worker_process import WorkerProcess
from feal.federation.transport.flower_client import DECODE_ERRORS, Envelope, pack_reply
from feal.federation.transport.flower_task import (
    IncomingMessage,
    make_claim_interceptors,
    make_retry_invoker,
    start_heartbeat,
)

STEP_SECONDS = 0.25
_Reply = bytes | DeliveryFailure


class MessageLoop:
    """Receive messages from the SuperNode on this machine at `address` and answer them."""

    def __init__(self, name: str, *, address: str, secret: str, worker: WorkerProcess) -> None:
        self._name = name
        self._address = address
        self._pendinger = worker
        self._client = self._connect(make_claim_interceptors(secret))
        self._task: _Task | None = None
        self._pending: _PendingReply | None = None

    def step(self) -> str:
        """Process the current message, or look for one, for a moment; return a sentence if one was answered.

        Raises:
            httpx.ConnectError: the SuperNode is not running.
            Exception: the message can no longer be answered through this SuperNode.
        """
        if self._pending is None:
            self._receive()
        if self._pending is None:
            time.sleep(STEP_SECONDS)
            return ""
        wait([self._pending.reply], timeout=STEP_SECONDS)
        return self._send_reply(self._pending) if self._pending.reply.done() else ""

    def close(self) -> None:
        """Disconnect from the SuperNode; the worker finishes its current message."""
        if self._task is not None:
            self._task.close()
        self._client.close()

    def _receive(self) -> None:
        """Claim a message, and pass it to the worker once it is complete."""
        claimed = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if claimed.token:
            if self._task is not None:
                # A SuperNode handles one message at a time: it abandoned the previous one because its run ended.
                self._task.finish(SubStatus.FAILED)
            self._task = _Task(self._connect([*_VERSION, RuntimeTokenHttpInterceptor(claimed.token)]))
        message = self._task.incoming.receive() if self._task is not None else None
        if message is not None:
            self._pending = _PendingReply(message, self._start_reply(message))

    def _start_reply(self, message: Message) -> Future[_Reply]:
        try:
            envelope = Envelope.unpack(message.content)
        except DECODE_ERRORS:
            # Sending it again would not help.
            return _complete(
                DeliveryFailure(
                    reason=f"Site {self._name} cannot read the message: use the same version of feal everywhere."
                )
            )
        if envelope.site == self._name:
            return self._pendinger.submit(envelope.run, envelope.request, timeout=envelope.timeout or None)
        wrong = f"The key of site {envelope.site} is used by a site named {self._name}: "
        failure = DeliveryFailure(reason=wrong + "give each site its own key and its own name in site.yaml.")
        return _complete(failure if envelope.site else self._name.encode())

    def _send_reply(self, pending: _PendingReply) -> str:
        assert self._task is not None
        reply = pending.reply.result()
        push_message(self._task.client, Message(pack_reply(reply), reply_to=pending.message), self._task.context)
        self._task.finish(SubStatus.COMPLETED)
        self._task = self._pending = None
        return reply.reason if isinstance(reply, DeliveryFailure) else "Answered a message."

    def _connect(self, interceptors: list[ProtobufClientInterceptor]) -> RuntimeHttpClient:
        with bypass_proxy(*LOOPBACK):
            return RuntimeHttpClient.from_server_address(
                self._address,
                insecure=True,
                root_certificates=None,
                interceptors=interceptors,
                retry_invoker=make_retry_invoker(),
            )


_VERSION: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]


def _complete(reply: _Reply) -> Future[_Reply]:
    future: Future[_Reply] = Future()
    future.set_result(reply)
    return future


@dataclass(frozen=True)
class _PendingReply:
    """A complete message and the reply that is being computed."""

    message: Message
    reply: Future[_Reply]


class _Task:
    """An announced message, which belongs to this process as long as it sends heartbeats."""

    def __init__(self, client: RuntimeHttpClient) -> None:
        self.client = client
        task = client.PullTaskInput(PullTaskInputRequest())
        self.context = context_from_proto(task.context)
        # Flower adds these to every message of this process.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        trees = client.PullMessages(PullAppMessagesRequest()).message_object_trees
        if not trees:
            raise RuntimeError("the SuperNode has no message for its task")
        node = Node(node_id=task.context.node_id)
        self.incoming = IncomingMessage(client, trees[0], node=node, run=task.run.run_id)
        self._heartbeat = start_heartbeat(client)

    def finish(self, status: str) -> None:
        """Report to the SuperNode that the task has ended."""
        push_task_output(self.client, None, status, "")
        self.close()

    def close(self) -> None:
        if self._heartbeat.is_running:
            self._heartbeat.stop()
        self.client.close()
