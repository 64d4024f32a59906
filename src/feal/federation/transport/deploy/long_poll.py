"""Hold a SuperNode's request for messages open until there is a message for it.

Flower's SuperNodes poll every three seconds. Here the SuperLink answers as soon as it has a message.
"""

from __future__ import annotations

import asyncio

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

LONG_POLL_SECONDS = 10.0
"""Well below the 30 s after which a SuperNode gives up."""
PULL_PATH = "/v1/fleet/pull-messages"
PUSH_PATH = "/v1/runtime/push-messages"
PULL_REPLIES_PATH = "/v1/runtime/pull-messages"
UNAVAILABLE = 503


class LongPolling:
    """Wrap Flower's app: track which nodes have messages, and which wait for one.

    A run sends the parts after the message itself: it is complete once the run sends the next message or asks for
    replies.
    """

    def __init__(self, app: ASGIApp, *, seconds: float = LONG_POLL_SECONDS) -> None:
        self._app = app
        self._seconds = seconds
        self._sent: set[int] = set()
        self._complete: set[int] = set()
        self._waiting: dict[int, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path in (PUSH_PATH, PULL_REPLIES_PATH):
            self._release()
        if path not in (PULL_PATH, PUSH_PATH):
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        if path == PULL_PATH and not await self._hold(_read_node(body), receive):
            await _respond(send, UNAVAILABLE)
            return
        await self._app(scope, _replay(body, receive), send)
        if path == PUSH_PATH:
            self._sent |= _read_recipients(body)

    def _release(self) -> None:
        self._complete |= self._sent
        for node in self._sent & self._waiting.keys():
            self._waiting[node].set()
        self._sent.clear()

    async def _hold(self, node: int | None, receive: Receive) -> bool:
        """Wait for a message and return whether the caller is still connected."""
        if node is None or node in self._complete:
            self._complete -= {node}
            return True
        if node in self._waiting:
            self._waiting[node].set()  # a SuperNode sends one request at a time: it has abandoned the earlier one
        arrived = self._waiting[node] = asyncio.Event()
        message, disconnect = asyncio.ensure_future(arrived.wait()), asyncio.ensure_future(receive())
        try:
            await asyncio.wait({message, disconnect}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            return self._waiting.get(node) is arrived and not disconnect.done()
        finally:
            message.cancel()
            disconnect.cancel()
            if self._waiting.get(node) is arrived:
                del self._waiting[node]
                self._complete -= {node}


async def _respond(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body that was already read, then further events."""
    replayed = False

    async def replay() -> Event:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _read_node(body: bytes) -> int | None:
    try:
        return int(PullMessagesRequest.FromString(body).node.node_id)
    except DecodeError:
        return None  # Flower reports what is wrong with it


def _read_recipients(body: bytes) -> set[int]:
    try:
        messages = PushAppMessagesRequest.FromString(body).messages_list
    except DecodeError:
        return set()
    return {int(message.metadata.dst_node_id) for message in messages}
