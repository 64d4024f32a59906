"""Control access to the coordinator's SuperLink: keys, request sizes and timeouts."""

from __future__ import annotations

import asyncio
import binascii
import hmac
import ipaddress
import logging
import ssl
from base64 import b64decode
from collections.abc import Collection, Sequence

from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, TIMESTAMP_HEADER
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.superlink.auth_plugin.noop_auth_plugin import NoOpControlAuthnPlugin
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FLEET_PREFIX = "/v1/fleet/"
"""The paths that sites use; all others are for runs on this machine."""
ACTIVATE_PATH = "/v1/fleet/activate-node"
MAX_UNSIGNED_BYTES = 16 * 1024
"""Enough for a SuperNode with an unknown key to connect and be refused."""
MAX_HEADER_BYTES = 64 * 1024
READ_TIMEOUT_SECONDS = 30.0
MIN_BYTES_PER_SECOND = 10_000
"""The connection of a site that sends more slowly is closed."""

logger = logging.getLogger("uvicorn.error")


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

    Flower reads a whole request before it authenticates it, so that anyone could fill the memory, and it serves
    the calls that start runs and register keys to every address.
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
