"""Messages that a site's SuperNode receives, abandons or loses."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import uvicorn
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _pull_and_store_message

from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.deploy.supernode import MessageLoop
from feal.federation.transport.flower_link import _build_app
from feal.federation.transport.flower_messages import (
    MESSAGE_TTL_SECONDS,
    MESSAGE_TYPE,
    PART_BYTES,
    Envelope,
    pack_reply,
    unpack_reply,
)
from tests.federation.transport.consortium import free_port, until

NODE, SECRET = 7, "a secret"


class Echo:
    """A worker that answers at once."""

    def submit(self, run: str, request: bytes, *, timeout: float | None) -> Future[bytes | DeliveryFailure]:
        answer: Future[bytes | DeliveryFailure] = Future()
        answer.set_result(b"to " + request)
        return answer


class Foreign:
    """Records of another program."""

    def pack(self) -> RecordDict:
        return RecordDict({"theirs": ConfigRecord({"site": "alder"})})


class SuperNode:
    """Flower's SuperNode, with the connection to a SuperLink simulated by the test."""

    def __init__(self) -> None:
        self._states = NodeStateFactory(ObjectStoreFactory())
        self.state = self._states.state()
        self.state.set_node_id(NODE)
        self.port = free_port()
        app = create_app(self._states, SECRET.encode())
        self._server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the SuperNode's start")

    def receives(self, envelope: Envelope | Foreign, *, run: int, cut_off: bool = False) -> int | None:
        """Deliver a message; the end of the run may cut it off after the announcement."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, 1, 1
        message = Message(envelope.pack(), dst_node_id=NODE, message_type=MESSAGE_TYPE, ttl=MESSAGE_TTL_SECONDS)
        message.metadata.__dict__["_message_id"] = message.object_id
        with no_object_id_recompute():
            tree, objects = get_object_tree(message), get_all_nested_objects(message)

        def pull(run: int, number: str) -> bytes:
            if cut_off:
                raise RunNotRunningException
            return objects[number].deflate()

        announced: list[tuple[Message, ObjectTree]] = [(message, tree)]
        received = Run.create_empty(run)
        app = _build_app()
        received.fab_hash, received.series_id = hashlib.sha256(app).hexdigest(), run
        callbacks: dict[str, Callable[..., Any]] = {
            "receive": lambda: announced[0],
            "get_run": lambda run: received,
            "get_fab": lambda digest, run: Fab(digest, app, {}),
            "pull_object": pull,
            "confirm_message_received": lambda run, number: None,
        }
        return _pull_and_store_message(
            state=self.state,
            object_store=self._states.objectstore_factory.store(),
            node_config={},
            trusted_entities=None,
            **callbacks,
        )

    def replies(self) -> list[Message]:
        return list(self.state.get_messages_legacy(is_reply=True))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture
def node() -> Iterator[SuperNode]:
    made = SuperNode()
    yield made
    made.close()


@pytest.fixture
def loop(node: SuperNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageLoop]:
    # No proxy listens there: a connection within this machine that used it would fail.
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    made = MessageLoop("alder", address=f"127.0.0.1:{node.port}", secret=SECRET, worker=Echo())  # type: ignore[arg-type]
    yield made
    made.close()


def _said(loop: MessageLoop, *, seconds: float = 30.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if said := loop.step():
            return said
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_message_that_the_supernode_abandoned_does_not_block_the_next(
    node: SuperNode, loop: MessageLoop
) -> None:
    assert node.receives(Envelope(site="alder", request=b"the first"), run=3) == 3
    assert _said(loop) == "Answered a message."
    (first,) = node.replies()
    # The run ends between a message's announcement and its parts: Flower keeps the task and waits for them.
    assert node.receives(Envelope(site="alder", request=b"cut off"), run=3, cut_off=True) is None
    assert _said(loop, seconds=1.0) == ""
    assert node.receives(Envelope(site="alder", request=b"the next"), run=4) == 4
    assert _said(loop) == "Answered a message."
    (reply,) = node.replies()
    assert (first.metadata.run_id, reply.metadata.run_id) == (3, 4)
    time.sleep(0.5)
    assert node.replies() == [], "an answer in the name of the one that was cut off would be sent for the next"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_unreadable_message_is_answered_with_the_problem(node: SuperNode, loop: MessageLoop) -> None:
    assert node.receives(Foreign(), run=3) == 3
    assert _said(loop) == "Site alder cannot read the message: use the same version of feal everywhere."
    (reply,) = node.replies()
    assert reply.metadata.run_id == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_message_with_a_lost_part_is_an_error(node: SuperNode, loop: MessageLoop) -> None:
    node.receives(Envelope(site="alder", request=b"cut off"), run=3, cut_off=True)
    loop.step()
    node.state.object_store.clear()
    with pytest.raises(Exception, match="could not be found"):
        _said(loop)


def test_a_message_is_sent_in_parts_that_are_unique() -> None:
    request = bytes(3 * PART_BYTES + 1)
    envelope = Envelope(site="alder", request=request, timeout=30, run="r")
    one, other = envelope.pack(), envelope.pack()
    assert Envelope.unpack(one) == envelope
    assert isinstance(Envelope.unpack(one).timeout, float)
    pieces = [record.deflate() for record in one.values()]
    assert len(pieces) == 5
    assert max(map(len, pieces)) < PART_BYTES + 200
    ids = [record.object_id for content in (one, other) for record in content.values()]
    assert len(set(ids)) == 10
    assert unpack_reply(pack_reply(request)) == request
    assert unpack_reply(pack_reply(DeliveryFailure(reason="no"))) == DeliveryFailure(reason="no")
    assert unpack_reply(pack_reply(b"")) == b""
