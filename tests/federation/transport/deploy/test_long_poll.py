"""Requests of SuperNodes for messages are held until there is one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest

from feal.federation.transport.deploy.long_poll import PULL_PATH, PULL_REPLIES_PATH, PUSH_PATH, LongPolling

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
