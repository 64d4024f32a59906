"""What a site does with messages that its SuperNode receives, gives up half-way, or loses."""

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

from feal.federation.deployed.worker import Worker
from feal.federation.engines.contract import Lost
from feal.federation.engines.flower_client import PART_BYTES, Question, packed, unpacked
from feal.federation.engines.flower_link import QUERY, YEAR, _app
from tests.federation.engines.consortium import free_port, until

NODE, SECRET = 7, "a secret"


class Echo:
    """A hand that answers at once."""

    def ask(self, run: str, request: bytes, *, timeout: float | None) -> Future[bytes | Lost]:
        answer: Future[bytes | Lost] = Future()
        answer.set_result(b"to " + request)
        return answer


class Foreign:
    """What another program might send."""

    def packed(self) -> RecordDict:
        return RecordDict({"theirs": ConfigRecord({"site": "alder"})})


class SuperNode:
    """Flower's own, but for the connection to a SuperLink: that is played by the test."""

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

    def receives(self, question: Question | Foreign, *, run: int, cut_off: bool = False) -> int | None:
        """Have a message come, which the run's end may cut off once it has been announced."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, 1, 1
        message = Message(question.packed(), dst_node_id=NODE, message_type=QUERY, ttl=YEAR)
        message.metadata.__dict__["_message_id"] = message.object_id
        with no_object_id_recompute():
            tree, objects = get_object_tree(message), get_all_nested_objects(message)

        def pull(run: int, number: str) -> bytes:
            if cut_off:
                raise RunNotRunningException
            return objects[number].deflate()

        announced: list[tuple[Message, ObjectTree]] = [(message, tree)]
        received = Run.create_empty(run)
        app = _app()
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
def worker(node: SuperNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    # Nobody is there: what asked a proxy for this machine's own addresses would fail.
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    made = Worker("alder", address=f"127.0.0.1:{node.port}", secret=SECRET, hand=Echo())  # type: ignore[arg-type]
    yield made
    made.close()


def _said(worker: Worker, *, seconds: float = 30.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if said := worker.step():
            return said
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_message_that_the_supernode_gave_up_half_way_holds_nothing_up(node: SuperNode, worker: Worker) -> None:
    assert node.receives(Question(site="alder", request=b"the first"), run=3) == 3
    assert _said(worker) == "Answered a message."
    (first,) = node.replies()
    # The run ends between a message's announcement and its parts: Flower keeps the task and waits for them.
    assert node.receives(Question(site="alder", request=b"cut off"), run=3, cut_off=True) is None
    assert _said(worker, seconds=1.0) == ""
    assert node.receives(Question(site="alder", request=b"the next"), run=4) == 4
    assert _said(worker) == "Answered a message."
    (reply,) = node.replies()
    assert (first.metadata.run_id, reply.metadata.run_id) == (3, 4)
    time.sleep(0.5)
    assert node.replies() == [], "an answer in the name of the one that was cut off would be sent for the next"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_message_that_cannot_be_read_is_answered_with_that(node: SuperNode, worker: Worker) -> None:
    assert node.receives(Foreign(), run=3) == 3
    assert _said(worker) == "Site alder cannot read what it was sent: is it of another version?"
    (reply,) = node.replies()
    assert reply.metadata.run_id == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_message_that_cannot_come_any_more_is_told(node: SuperNode, worker: Worker) -> None:
    node.receives(Question(site="alder", request=b"cut off"), run=3, cut_off=True)
    worker.step()
    node.state.object_store.clear()
    with pytest.raises(Exception, match="could not be found"):
        _said(worker)


def test_a_message_is_carried_in_pieces_and_is_like_no_other() -> None:
    request = bytes(3 * PART_BYTES + 1)
    question = Question(site="alder", request=request, timeout=30, run="r")
    one, other = question.packed(), question.packed()
    assert Question.of(one) == question
    assert isinstance(Question.of(one).timeout, float)
    pieces = [record.deflate() for record in one.values()]
    assert len(pieces) == 5
    assert max(map(len, pieces)) < PART_BYTES + 200
    ids = [record.object_id for content in (one, other) for record in content.values()]
    assert len(set(ids)) == 10
    assert unpacked(packed(request)) == request
    assert unpacked(packed(Lost(reason="no"))) == Lost(reason="no")
    assert unpacked(packed(b"")) == b""
