"""A site's end of a message: what the SuperNode received goes to the hand, and the hand's reply back.

Flower would start a process for every message and run in it whatever code the coordinator sent. Here the
code is what the site has installed itself, and nothing that comes with a message is run.
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

from feal.deployment.direct import LOOPBACK, directly
from feal.federation.deployed.hand import Hand
from feal.federation.engines.contract import Lost
from feal.federation.engines.flower_client import UNREADABLE, Question, packed
from feal.federation.engines.flower_task import Arrival, claimant, keep_alive, once_more

PAUSE_SECONDS = 0.25
Reply = bytes | Lost


class Worker:
    """Takes messages from the SuperNode on this machine at `address` and answers them."""

    def __init__(self, name: str, *, address: str, secret: str, hand: Hand) -> None:
        self._name = name
        self._address = address
        self._hand = hand
        self._client = self._connected(claimant(secret))
        self._task: _Task | None = None
        self._work: _Work | None = None

    def step(self) -> str:
        """Go on with the message at hand, or look for one, for a moment; say what was answered, if anything.

        Raises:
            httpx.ConnectError: the SuperNode is not there.
            Exception: the message cannot be answered by way of this SuperNode any more.
        """
        if self._work is None:
            self._look()
        if self._work is None:
            time.sleep(PAUSE_SECONDS)
            return ""
        wait([self._work.reply], timeout=PAUSE_SECONDS)
        return self._sent(self._work) if self._work.reply.done() else ""

    def close(self) -> None:
        """Let go of the SuperNode; what the hand is at, it ends by itself."""
        if self._task is not None:
            self._task.close()
        self._client.close()

    def _look(self) -> None:
        """Claim a message, and give it to the hand once it is whole."""
        claimed = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if claimed.token:
            if self._task is not None:
                # A SuperNode has one message at a time: it gave up the one before, whose run was over, half-way.
                self._task.finish(SubStatus.FAILED)
            self._task = _Task(self._connected([*_VERSION, RuntimeTokenHttpInterceptor(claimed.token)]))
        message = self._task.arrival.message() if self._task is not None else None
        if message is not None:
            self._work = _Work(message, self._asked(message))

    def _asked(self, message: Message) -> Future[Reply]:
        try:
            question = Question.of(message.content)
        except UNREADABLE:
            # It would be no better for being sent again.
            return _answered(
                Lost(reason=f"Site {self._name} cannot read what it was sent: is it of another version?")
            )
        if question.site == self._name:
            return self._hand.ask(question.run, question.request, timeout=question.timeout or None)
        wrong = f"The key of site {question.site} is used by one that calls itself {self._name}: "
        lost = Lost(reason=wrong + "give each its own key, and its own name in site.yaml.")
        return _answered(lost if question.site else self._name.encode())

    def _sent(self, work: _Work) -> str:
        assert self._task is not None
        reply = work.reply.result()
        push_message(self._task.client, Message(packed(reply), reply_to=work.message), self._task.context)
        self._task.finish(SubStatus.COMPLETED)
        self._task = self._work = None
        return reply.reason if isinstance(reply, Lost) else "Answered a message."

    def _connected(self, interceptors: list[ProtobufClientInterceptor]) -> RuntimeHttpClient:
        with directly(*LOOPBACK):
            return RuntimeHttpClient.from_server_address(
                self._address,
                insecure=True,
                root_certificates=None,
                interceptors=interceptors,
                retry_invoker=once_more(),
            )


_VERSION: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]


def _answered(reply: Reply) -> Future[Reply]:
    answered: Future[Reply] = Future()
    answered.set_result(reply)
    return answered


@dataclass(frozen=True)
class _Work:
    """A whole message, and the answer that is being made."""

    message: Message
    reply: Future[Reply]


class _Task:
    """A message that the SuperNode has announced; it is this process's as long as it says so from time to time."""

    def __init__(self, client: RuntimeHttpClient) -> None:
        self.client = client
        given = client.PullTaskInput(PullTaskInputRequest())
        self.context = context_from_proto(given.context)
        # What messages of this process say of themselves.
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        trees = client.PullMessages(PullAppMessagesRequest()).message_object_trees
        if not trees:
            raise RuntimeError("the SuperNode has no message for its task")
        node = Node(node_id=given.context.node_id)
        self.arrival = Arrival(client, trees[0], node=node, run=given.run.run_id)
        self._beats = keep_alive(client)

    def finish(self, status: str) -> None:
        """Tell the SuperNode that nobody works on it any more."""
        push_task_output(self.client, None, status, "")
        self.close()

    def close(self) -> None:
        if self._beats.is_running:
            self._beats.stop()
        self.client.close()
