"""What lies between the network and Flower's SuperLink: keys, sizes, timeouts, long polling, redelivery."""

from __future__ import annotations

import asyncio
import binascii
import hmac
import ipaddress
import logging
import ssl
from base64 import b64decode
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, TIMESTAMP_HEADER
from flwr.common.event_log_plugin import EventLogWriterPlugin
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesResponse
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.event_log.typing import Actor, Event, LogEntry
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.superlink.auth_plugin.noop_auth_plugin import NoOpControlAuthnPlugin
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState

FLEET_PREFIX = "/v1/fleet/"
"""The paths that sites use; all others are for runs on this machine."""
ACTIVATE_PATH = "/v1/fleet/activate-node"
MAX_UNSIGNED_BYTES = 16 * 1024
"""Enough for a SuperNode with an unknown key to connect and be refused."""
MAX_HEADER_BYTES = 64 * 1024
READ_TIMEOUT_SECONDS = 30.0
MIN_BYTES_PER_SECOND = 10_000
"""The connection of a site that sends more slowly is closed."""
LONG_POLL_SECONDS = 10.0
"""Well below the 30 s after which a SuperNode gives up."""
PULL_PATH = "/v1/fleet/pull-messages"
PUSH_PATH = "/v1/runtime/push-messages"
PULL_REPLIES_PATH = "/v1/runtime/pull-messages"

logger = logging.getLogger("uvicorn.error")
_NO_ENTRY = LogEntry(timestamp="", actor=Actor("", "", ""), event=Event("", None, None), status="")


class RunKeyAuthenticator(NoOpControlAuthnPlugin):
    """Accept callers that have the run key."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        assert secret, "an empty key would accept every caller"
        self._secret = secret.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        token = given if isinstance(given, bytes) else given.encode()
        valid = hmac.compare_digest(token, self._secret)
        return valid, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME) if valid else None


class AccessFilter:
    """Reject requests that neither a site nor a run would send, before their body is read.

    Flower reads a whole request before it authenticates it, so that any machine could fill the memory, and it
    serves the calls that start runs and register keys to every address.
    """

    def __init__(self, app: ASGIApp, *, keys: Collection[bytes]) -> None:
        self._app = app
        self._keys = frozenset(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = self._find_objection(scope) if scope["type"] == "http" else None
        if reason is None:
            await self._app(scope, receive, send)
            return
        logger.warning("A request from %s was refused: %s", (scope.get("client") or ["unknown"])[0], reason)
        await PlainTextResponse(reason, 403, headers={"connection": "close"})(scope, receive, send)

    def _find_objection(self, scope: Scope) -> str | None:
        if _is_local(scope):
            return None
        if not scope["path"].startswith(FLEET_PREFIX):
            return "this call is allowed only from the coordinator's own machine"
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        short = length.isdecimal() and int(length) <= MAX_UNSIGNED_BYTES
        # Flower itself reports to a connecting SuperNode whether its key is registered.
        allowed = self._is_signed(headers) or (short and scope["path"] == ACTIVATE_PATH)
        return None if allowed else "it is not signed with a registered key"

    def _is_signed(self, headers: Headers) -> bool:
        try:
            key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            stamp = headers[TIMESTAMP_HEADER].encode("ascii")
            return key in self._keys and verify_signature(bytes_to_public_key(key), stamp, signature)
        except (KeyError, ValueError, TypeError, binascii.Error):
            return False


def _is_local(scope: Scope) -> bool:
    """Return whether the request comes from this machine."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    return _parse_ip(client[0]).is_loopback or _parse_ip(client[0]) == _parse_ip(server[0])


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    number = ipaddress.ip_address(host.partition("%")[0])
    return getattr(number, "ipv4_mapped", None) or number


class IdleTimeoutProtocol(HttpToolsProtocol):
    """Close idle and slow connections, so that they cannot exhaust the limit."""

    _timer: asyncio.TimerHandle | None = None
    _header_size: int | None = 0
    """Bytes of the request's header so far; None once it is complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer(READ_TIMEOUT_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._header_size is not None:
            self._header_size += len(data)
            if self._header_size > MAX_HEADER_BYTES:
                self._abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_size = 0
        self._set_timer(READ_TIMEOUT_SECONDS)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._header_size = None
        length = dict(self.headers).get(b"content-length", b"0")
        self._set_timer(READ_TIMEOUT_SECONDS + (int(length) if length.isdigit() else 0) / MIN_BYTES_PER_SECOND)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._set_timer(None)

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        logger.warning("A connection from %s was closed: it was idle or too slow", (self.client or "?")[0])
        self.transport.abort()


class LoggedHandshake(ssl.SSLObject):
    """Log failed handshakes, which asyncio ignores."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            logger.warning("A connection was refused: %s", error.reason or error)
            raise


class LongPolling:
    """Hold a SuperNode's request for messages open until there is a message for it.

    Flower's SuperNodes poll every three seconds. Here the SuperLink answers as soon as it has a message. A run
    sends the parts after the message itself: it is complete once the run sends the next message or asks for
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
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        if path == PULL_PATH and not await self._hold(_read_node(body), receive):
            await Response(status_code=503)(scope, receive, send)
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


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body that was already read, then further events."""
    replayed = False

    async def replay() -> Message:
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


class RedeliveryPlugin(EventLogWriterPlugin):
    """Delete a lost message from the SuperLink, so that the run sends it again.

    Flower marks a message as delivered when a SuperNode requests it, and waits forever if it is lost afterwards. A
    SuperNode handles one message at a time and requests another when it has none: one that requests a message
    before it answered has lost the previous one. Flower reports every authenticated call to its event log.
    """

    def __init__(self) -> None:
        self._delivered: dict[int, str] = {}

    def compose_log_before_event(
        self, request: Any, context: Any, account_info: object, method_name: str
    ) -> LogEntry:
        if isinstance(request, PullMessagesRequest):
            lost = self._delivered.pop(request.node.node_id, None)
            if lost is not None:
                state: LinkState = context.app.state.linkstate_factory.state()
                state.delete_messages({lost})
        return _NO_ENTRY

    def compose_log_after_event(
        self, request: Any, context: Any, account_info: object, method_name: str, response: Any
    ) -> LogEntry:
        if isinstance(response, PullMessagesResponse) and response.messages_list:
            self._delivered[request.node.node_id] = response.messages_list[0].metadata.message_id
        # Flower requests no parts of a reply that it rejected.
        if isinstance(response, PushMessagesResponse) and response.objects_to_push:
            self._delivered.pop(request.node.node_id, None)
        return _NO_ENTRY

    def write_log(self, log_entry: LogEntry) -> None:
        """Write nothing: only the calls themselves matter."""


def discard_messages(state: LinkState) -> None:
    """Delete every message that was pending when the SuperLink ended: it is unknown which of them arrived."""
    for run in state.get_run_info():
        state.cleanup_run(run.run_id)
