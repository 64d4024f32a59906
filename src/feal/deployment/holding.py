"""A SuperNode's question for messages is held for a while, until there is one for it.

Flower's SuperNodes ask every three seconds. Here the SuperLink answers when it has something to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

HOLD_SECONDS = 10.0
"""Well below the thirty that a SuperNode waits for an answer."""
ASKED = "/v1/fleet/pull-messages"
SENT = "/v1/runtime/push-messages"
LOOKED = "/v1/runtime/pull-messages"
TRY_AGAIN = 503

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Event, Receive, Send], Awaitable[None]]


class Holding:
    """Around Flower's app: knows for whom runs have sent messages, and who waits for one.

    A run sends a message's parts after the message: it is whole when the run sends the next or looks for replies.
    """

    def __init__(self, app: App, *, seconds: float = HOLD_SECONDS) -> None:
        self._app = app
        self._seconds = seconds
        self._sent: set[int] = set()
        self._whole: set[int] = set()
        self._waiting: dict[int, asyncio.Event] = {}

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path in (SENT, LOOKED):
            self._release()
        if path not in (ASKED, SENT):
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        if path == ASKED and not await self._held(_asking(body), receive):
            await _answer(send, TRY_AGAIN)
            return
        await self._app(scope, _again(body, receive), send)
        if path == SENT:
            self._sent |= _addressed(body)

    def _release(self) -> None:
        self._whole |= self._sent
        for node in self._sent & self._waiting.keys():
            self._waiting[node].set()
        self._sent.clear()

    async def _held(self, node: int | None, receive: Receive) -> bool:
        """Hold a question; whether whoever asked it is still there to be answered."""
        if node is None or node in self._whole:
            self._whole -= {node}
            return True
        if node in self._waiting:
            self._waiting[node].set()  # a SuperNode asks one thing at a time: it has given up what it asked before
        news = self._waiting[node] = asyncio.Event()
        told, left = asyncio.ensure_future(news.wait()), asyncio.ensure_future(receive())
        try:
            await asyncio.wait({told, left}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            return self._waiting.get(node) is news and not left.done()
        finally:
            told.cancel()
            left.cancel()
            if self._waiting.get(node) is news:
                del self._waiting[node]
                self._whole -= {node}


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    return body


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives a body that has been read, and then whatever comes."""
    given = False

    async def again() -> Event:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _asking(body: bytes) -> int | None:
    try:
        return int(PullMessagesRequest.FromString(body).node.node_id)
    except DecodeError:
        return None  # Flower says what is wrong with it


def _addressed(body: bytes) -> set[int]:
    try:
        messages = PushAppMessagesRequest.FromString(body).messages_list
    except DecodeError:
        return set()
    return {int(message.metadata.dst_node_id) for message in messages}
