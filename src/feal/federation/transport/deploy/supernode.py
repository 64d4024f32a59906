"""The SuperNode of a site: run Flower's in a child process, and pass its messages to the site's worker process.

`python -m feal.federation.transport.deploy.supernode PARENT [options of flower-supernode]`. Flower would start a
process for every message and run the code that the coordinator sent. Here the site runs only the code that it
installed itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING

from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullAppMessagesRequest
from flwr.supercore import heartbeat
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from feal.federation.transport.base import Delivery, DeliveryFailure
from feal.federation.transport.deploy.config import LOOPBACK, bypass_proxy
from feal.federation.transport.flower_messages import (
    DECODE_ERRORS,
    Envelope,
    IncomingMessage,
    adopt_task,
    make_claim_interceptors,
    make_retry_invoker,
    pack_reply,
    start_heartbeat,
)
from feal.processes import exit_with_parent

if TYPE_CHECKING:
    from feal.federation.transport.deploy.worker import WorkerProcess

HEARTBEAT_SECONDS = 10
"""The shortest interval that Flower accepts: a killed SuperNode is missed after twice that, not after a minute."""
PULL_SECONDS = 0.05
"""Between two requests for messages, instead of Flower's 3 s: the coordinator holds each request open."""
STEP_SECONDS = 0.25


def run_supernode() -> None:
    """Run the SuperNode until this process is terminated or its parent ends."""
    parent = int(sys.argv.pop(1))
    exit_with_parent(parent, lambda: os.kill(os.getpid(), signal.SIGINT))
    for module in (heartbeat, fleet_http_connection):
        module.HEARTBEAT_DEFAULT_INTERVAL = HEARTBEAT_SECONDS  # type: ignore[attr-defined]
    start_client_internal.time = SimpleNamespace(  # type: ignore[assignment,attr-defined]
        sleep=lambda seconds: time.sleep(min(seconds, PULL_SECONDS))
    )
    try:
        flower_supernode()
    except Exception:
        traceback.print_exc()
    finally:
        # The thread of its server would keep the process alive forever, without a connection to the coordinator.
        sys.stderr.flush()
        os._exit(1)


class MessageLoop:
    """Receive messages from the SuperNode on this machine at `address` and answer them."""

    def __init__(self, name: str, *, address: str, secret: str, worker: WorkerProcess) -> None:
        self._name = name
        self._address = address
        self._worker = worker
        self._client = self._connect(make_claim_interceptors(secret))
        self._task: _Task | None = None
        self._pending: tuple[Message, Future[Delivery]] | None = None

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
        message, reply = self._pending
        wait([reply], timeout=STEP_SECONDS)
        return self._send_reply(message, reply.result()) if reply.done() else ""

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
            version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
            self._task = _Task(self._connect([version, RuntimeTokenHttpInterceptor(claimed.token)]))
        message = self._task.incoming.receive() if self._task is not None else None
        if message is not None:
            self._pending = message, self._start_reply(message)

    def _start_reply(self, message: Message) -> Future[Delivery]:
        try:
            envelope = Envelope.unpack(message.content)
        except DECODE_ERRORS:
            # Sending it again would not help.
            reason = f"Site {self._name} cannot read the message: use the same version of feal everywhere."
            return _complete(DeliveryFailure(reason=reason))
        if envelope.site == self._name:
            return self._worker.submit(envelope.run, envelope.request, timeout=envelope.timeout or None)
        wrong = f"The key of site {envelope.site} is used by a site named {self._name}: "
        failure = DeliveryFailure(reason=wrong + "give each site its own key and its own name in site.yaml.")
        return _complete(failure if envelope.site else self._name.encode())

    def _send_reply(self, message: Message, reply: Delivery) -> str:
        assert self._task is not None
        push_message(self._task.client, Message(pack_reply(reply), reply_to=message), self._task.context)
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


def _complete(reply: Delivery) -> Future[Delivery]:
    future: Future[Delivery] = Future()
    future.set_result(reply)
    return future


class _Task:
    """An announced message, which belongs to this process as long as it sends heartbeats."""

    def __init__(self, client: RuntimeHttpClient) -> None:
        self.client = client
        task = adopt_task(client)
        self.context = context_from_proto(task.context)
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


if __name__ == "__main__":
    run_supernode()
