"""Access to the SuperLink, timeouts of its connections, held requests, and messages that were lost."""

import asyncio
import contextlib
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import ACCESS_TOKEN_KEY, TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from feal.federation.transport.deploy import middleware
from feal.federation.transport.deploy.middleware import (
    ACTIVATE_PATH,
    PULL_PATH,
    PULL_REPLIES_PATH,
    PUSH_PATH,
    AccessFilter,
    IdleTimeoutProtocol,
    LongPolling,
    RedeliveryPlugin,
    RunKeyAuthenticator,
    discard_messages,
)

HUB = "198.51.100.1"


def test_only_the_run_key_is_accepted() -> None:
    key = RunKeyAuthenticator("right")
    assert key.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, "right")])[0]
    for metadata in ([], [(ACCESS_TOKEN_KEY, "wrong")], [(ACCESS_TOKEN_KEY, b"")], [("other", "right")]):
        assert key.validate_tokens_in_metadata(metadata) == (False, None)
    with pytest.raises(AssertionError):
        RunKeyAuthenticator("")


async def _welcome(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def _asked(keys: list[bytes], path: str, *, client: str = "203.0.113.9", **headers: str) -> int:
    """Return the status of the response to a request from a machine."""
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing of it should be read")

    async def send(message: Any) -> None:
        told.append(message)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": "POST", "headers": named}
    scope |= {"client": (client, 50000), "server": (HUB, 9092)}
    asyncio.run(AccessFilter(_welcome, keys=keys)(scope, receive, send))  # type: ignore[arg-type]
    return int(told[0]["status"])


def test_calls_that_start_runs_are_accepted_from_this_machine_only() -> None:
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/openapi.json", "/v1/fleet", "/"):
        assert _asked([], path, content_length="0") == 403
        for client in ("127.0.0.1", "::1", "::ffff:127.0.0.1", HUB):
            assert _asked([], path, client=client) == 200


def _signed(private: ec.EllipticCurvePrivateKey, public: bytes) -> dict[str, str]:
    stamp = "2026-01-01T00:00:00+00:00"
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public).decode(),
        TIMESTAMP_HEADER: stamp,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(private, stamp.encode())).decode(),
    }


def test_only_requests_signed_with_a_registered_key_are_accepted() -> None:
    path = "/v1/fleet/push-object"
    (private, shown), (stranger, other) = generate_key_pairs(), generate_key_pairs()
    key, another = public_key_to_bytes(shown), public_key_to_bytes(other)
    much = {"content-length": str(10**9)}
    assert _asked([key], path, **_signed(private, key), **much) == 200
    assert _asked([key], path, **much) == 403
    assert _asked([key], "/v1/fleet/pull-messages", content_length="20") == 403
    for length, status in (("200", 200), (str(10**9), 403), ("-1", 403), ("", 403)):
        assert (
            _asked([key], ACTIVATE_PATH, content_length=length) == status
        )  # Flower tells it that it is not known
    assert _asked([key], ACTIVATE_PATH) == 403  # of unknown length
    assert _asked([key], path, **_signed(stranger, another), **much) == 403
    assert _asked([key], path, **_signed(stranger, key), **much) == 403
    assert _asked([key], path, **{**_signed(private, key), FLEET_HTTP_SIGNATURE_HEADER: "?"}, **much) == 403


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with short timeouts."""
    monkeypatch.setattr(middleware, "READ_TIMEOUT_SECONDS", 0.3)

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await _welcome(scope, receive, send)

    config = uvicorn.Config(reading, http=IdleTimeoutProtocol, ws="none", lifespan="off", log_level="critical")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


HEAD = b"POST /x HTTP/1.1\r\nhost: hub\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", HEAD, HEAD + b"content-length: 5\r\n\r\nabc", HEAD + b"x: " + b"y" * 100_000],
    ids=["nothing", "half a head", "half a body", "an endless head"],
)
def test_an_idle_connection_is_closed(sent: bytes, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        began = time.monotonic()
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        assert time.monotonic() - began < 5


def test_a_slow_but_steady_connection_stays_open(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MIN_BYTES_PER_SECOND", 4)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(HEAD + b"content-length: 4\r\n\r\n")
        for _ in range(4):
            time.sleep(0.2)
            connection.sendall(b"x")
        assert connection.recv(12) == b"HTTP/1.1 200"


ALDER, BIRCH = 1, 2


class Link:
    """A SuperLink that answers at once, behind long polling."""

    def __init__(self, *, seconds: float = 60.0) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self._holding = LongPolling(self._app, seconds=seconds)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        self.calls.append((scope["path"], event.get("body", b"")))
        await send({"type": "http.response.start", "status": 200})

    async def call(self, path: str, body: bytes = b"", *, leaves: asyncio.Event | None = None) -> int:
        """Return the status of the response to a call, or 0 if there is none."""
        status: list[int] = []
        events: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if events:
                return events.pop()
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            status.append(event.get("status", 0))

        await self._holding({"type": "http", "path": path}, receive, send)
        return status[0] if status else 0

    def asks(self, node: int, *, leaves: asyncio.Event | None = None) -> "asyncio.Task[int]":
        request = PullMessagesRequest(node=Node(node_id=node)).SerializeToString()
        return asyncio.ensure_future(self.call(PULL_PATH, request, leaves=leaves))

    async def sends(self, node: int) -> None:
        message = Message(metadata=Metadata(dst_node_id=node))
        await self.call(PUSH_PATH, PushAppMessagesRequest(messages_list=[message]).SerializeToString())


def _play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scene(), timeout=30)

    asyncio.run(bounded())


async def _settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_request_is_answered_once_its_message_is_complete() -> None:
    async def scene() -> None:
        link = Link()
        alder, birch = link.asks(ALDER), link.asks(BIRCH)
        await _settled()
        await link.sends(ALDER)
        await _settled()
        assert not alder.done(), "its parts are not there yet"
        await link.sends(BIRCH)
        assert await alder == 200
        assert not birch.done()
        await link.call(PULL_REPLIES_PATH)
        assert await birch == 200
        assert [path for path, _ in link.calls] == [PUSH_PATH, PUSH_PATH, PULL_PATH, PULL_REPLIES_PATH, PULL_PATH]
        assert PullMessagesRequest.FromString(link.calls[-1][1]).node.node_id == BIRCH

    _play(scene)


def test_a_request_after_the_message_is_answered_at_once_and_the_next_is_held() -> None:
    async def scene() -> None:
        link = Link()
        await link.sends(ALDER)
        await link.call(PULL_REPLIES_PATH)
        assert await link.asks(ALDER) == 200
        again = link.asks(ALDER)
        await _settled()
        assert not again.done()
        again.cancel()

    _play(scene)


def test_a_held_request_is_answered_in_the_end() -> None:
    async def scene() -> None:
        assert await Link(seconds=0.01).asks(ALDER) == 200

    _play(scene)


def test_no_message_is_sent_to_a_closed_connection() -> None:
    async def scene() -> None:
        link, leaves = Link(), asyncio.Event()
        left = link.asks(ALDER, leaves=leaves)
        await _settled()
        leaves.set()
        assert await left == 503
        before = link.asks(ALDER)
        await _settled()
        now = link.asks(ALDER)
        assert await before == 503
        await link.sends(ALDER)
        await link.call(PULL_REPLIES_PATH)
        assert await now == 200
        assert [path for path, _ in link.calls] == [PUSH_PATH, PULL_REPLIES_PATH, PULL_PATH]

    _play(scene)


ALDER_NODE, BIRCH_NODE = Node(node_id=1), Node(node_id=2)


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
    calls.pull(ALDER_NODE, gets="one")
    calls.pull(BIRCH_NODE, gets="two")
    calls.pull(ALDER_NODE)
    assert calls.state.deleted == ["one"]
    calls.pull(ALDER_NODE)
    assert calls.state.deleted == ["one"]


def test_a_supernode_that_answered_has_lost_nothing_unless_the_reply_was_rejected(calls: Calls) -> None:
    calls.pull(ALDER_NODE, gets="one")
    calls.push(ALDER_NODE)
    calls.pull(ALDER_NODE, gets="two")
    assert calls.state.deleted == []
    calls.push(ALDER_NODE, taken=False)
    calls.pull(ALDER_NODE)
    assert calls.state.deleted == ["two"]


def test_no_message_is_pending_after_a_start(calls: Calls) -> None:
    discard_messages(calls.state)  # type: ignore[arg-type]
    assert calls.state.cleaned == [1, 2]
