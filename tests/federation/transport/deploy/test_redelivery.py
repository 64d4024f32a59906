"""Messages that SuperNodes received and did not answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node

from feal.federation.transport.deploy.redelivery import RedeliveryPlugin, discard_messages

ALDER, BIRCH = Node(node_id=1), Node(node_id=2)


class State:
    """Record what is deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.cleaned: list[int] = []

    def delete_messages(self, message_ins_ids: set[str]) -> None:
        self.deleted += message_ins_ids

    def get_run_info(self) -> list[Any]:
        return [SimpleNamespace(run_id=1), SimpleNamespace(run_id=2)]

    def cleanup_run(self, run_id: int) -> None:
        self.cleaned.append(run_id)


class Calls:
    """Report calls to the plugin as Flower does."""

    def __init__(self) -> None:
        self.state = State()
        factory = SimpleNamespace(state=lambda: self.state)
        self._context = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(linkstate_factory=factory)))
        self._deliveries = RedeliveryPlugin()

    def pull(self, node: Node, *, gets: str = "") -> None:
        messages = [Message(metadata=Metadata(message_id=gets))] if gets else []
        self._called(PullMessagesRequest(node=node), PullMessagesResponse(messages_list=messages))

    def push(self, node: Node, *, taken: bool = True) -> None:
        parts = ["part"] if taken else []
        self._called(PushMessagesRequest(node=node), PushMessagesResponse(objects_to_push=parts))

    def _called(self, request: Any, response: Any) -> None:
        self._deliveries.compose_log_before_event(request, self._context, None, "call")
        self._deliveries.compose_log_after_event(request, self._context, None, "call", response)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_a_supernode_that_requests_before_it_answered_has_lost_its_message(calls: Calls) -> None:
    calls.pull(ALDER, gets="one")
    calls.pull(BIRCH, gets="two")
    calls.pull(ALDER)
    assert calls.state.deleted == ["one"]
    calls.pull(ALDER)
    assert calls.state.deleted == ["one"]


def test_a_supernode_that_answered_has_lost_nothing_unless_the_reply_was_rejected(calls: Calls) -> None:
    calls.pull(ALDER, gets="one")
    calls.push(ALDER)
    calls.pull(ALDER, gets="two")
    assert calls.state.deleted == []
    calls.push(ALDER, taken=False)
    calls.pull(ALDER)
    assert calls.state.deleted == ["two"]


def test_no_message_is_pending_after_a_start(calls: Calls) -> None:
    discard_messages(calls.state)  # type: ignore[arg-type]
    assert calls.state.cleaned == [1, 2]
