"""When a SuperNode that asks for messages is answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest

from feal.deployment.holding import ASKED, LOOKED, SENT, Holding

ALDER, BIRCH = 1, 2


class Link:
    """A SuperLink that answers everything at once, behind what holds questions."""

    def __init__(self, *, seconds: float = 60.0) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self._holding = Holding(self._app, seconds=seconds)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        event = await receive()
        self.calls.append((scope["path"], event.get("body", b"")))
        await send({"type": "http.response.start", "status": 200})

    async def call(self, path: str, body: bytes = b"", *, leaves: asyncio.Event | None = None) -> int:
        """The status of a call's answer, or 0 if there is none."""
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
        return asyncio.ensure_future(self.call(ASKED, request, leaves=leaves))

    async def sends(self, node: int) -> None:
        message = Message(metadata=Metadata(dst_node_id=node))
        await self.call(SENT, PushAppMessagesRequest(messages_list=[message]).SerializeToString())


def _play(scene: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scene(), timeout=30)

    asyncio.run(bounded())


async def _settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_question_is_answered_once_a_message_for_the_asker_is_whole() -> None:
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
        await link.call(LOOKED)
        assert await birch == 200
        assert [path for path, _ in link.calls] == [SENT, SENT, ASKED, LOOKED, ASKED]
        assert PullMessagesRequest.FromString(link.calls[-1][1]).node.node_id == BIRCH

    _play(scene)


def test_one_that_comes_after_the_message_is_answered_at_once_and_held_afterwards() -> None:
    async def scene() -> None:
        link = Link()
        await link.sends(ALDER)
        await link.call(LOOKED)
        assert await link.asks(ALDER) == 200
        again = link.asks(ALDER)
        await _settled()
        assert not again.done()
        again.cancel()

    _play(scene)


def test_nobody_is_held_for_ever() -> None:
    async def scene() -> None:
        assert await Link(seconds=0.01).asks(ALDER) == 200

    _play(scene)


def test_no_message_is_given_to_one_who_is_gone() -> None:
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
        await link.call(LOOKED)
        assert await now == 200
        assert [path for path, _ in link.calls] == [SENT, LOOKED, ASKED]

    _play(scene)
