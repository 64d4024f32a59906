"""Who may speak to the coordinator's SuperLink, and for how long one may keep it waiting."""

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

SITES = "/v1/fleet/"
"""The part of Flower's interface that sites use; all else is for runs, on this machine."""
DIALLING = "/v1/fleet/activate-node"
STRANGERS_BYTES = 16 * 1024
"""Enough to be told that one is not known."""
HEADER_BYTES = 64 * 1024
PATIENCE_SECONDS = 30.0
BYTES_PER_SECOND = 10_000
"""A site that sends more slowly than this is cut off."""

logger = logging.getLogger("uvicorn.error")


class RunKey(NoOpControlAuthnPlugin):
    """Lets those in who hold the run key."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        assert secret, "an empty key would open to everybody"
        self._secret = secret.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        held = given if isinstance(given, bytes) else given.encode()
        valid = hmac.compare_digest(held, self._secret)
        return valid, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME) if valid else None


class Door:
    """Turns away what no site and no run would send, before it is read.

    Flower reads a request whole before it asks whose it is, so that strangers could fill the memory; and it offers
    what starts runs and registers keys to every address.
    """

    def __init__(self, app: ASGIApp, *, keys: Collection[bytes]) -> None:
        self._app = app
        self._keys = frozenset(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._why_not(scope) if scope["type"] == "http" else None
        if why is None:
            await self._app(scope, receive, send)
            return
        logger.warning("A request from %s was refused: %s", (scope.get("client") or ["nobody"])[0], why)
        await PlainTextResponse(why, 403, headers={"connection": "close"})(scope, receive, send)

    def _why_not(self, scope: Scope) -> str | None:
        if _from_here(scope):
            return None
        if not scope["path"].startswith(SITES):
            return "this is for the coordinator's own machine"
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        short = length.isdecimal() and int(length) <= STRANGERS_BYTES
        # Flower itself tells one that dials in whether its key is registered.
        welcome = self._signed(headers) or (short and scope["path"] == DIALLING)
        return None if welcome else "it is not signed with a key that is registered"

    def _signed(self, headers: Headers) -> bool:
        try:
            key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            stamp = headers[TIMESTAMP_HEADER].encode("ascii")
            return key in self._keys and verify_signature(bytes_to_public_key(key), stamp, signature)
        except (KeyError, ValueError, TypeError, binascii.Error):
            return False


def _from_here(scope: Scope) -> bool:
    """Whether this machine speaks to itself."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    return _number(client[0]).is_loopback or _number(client[0]) == _number(server[0])


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    number = ipaddress.ip_address(host.partition("%")[0])
    return getattr(number, "ipv4_mapped", None) or number


class Impatient(HttpToolsProtocol):
    """Closes connections on which nothing happens, so that they cannot use up all that there may be."""

    _timer: asyncio.TimerHandle | None = None
    _heading: int | None = 0
    """Bytes of a request's head so far; None once it is whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(PATIENCE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._heading is not None:
            self._heading += len(data)
            if self._heading > HEADER_BYTES:
                self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._heading = 0
        self._wait(PATIENCE_SECONDS)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._heading = None
        length = dict(self.headers).get(b"content-length", b"0")
        self._wait(PATIENCE_SECONDS + (int(length) if length.isdigit() else 0) / BYTES_PER_SECOND)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._wait(None)

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        logger.warning("A connection from %s was closed: it kept the coordinator waiting", (self.client or "?")[0])
        self.transport.abort()


class Handshake(ssl.SSLObject):
    """Says in the log when a handshake failed, which asyncio passes over in silence."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            logger.warning("A connection was refused: %s", error.reason or error)
            raise
