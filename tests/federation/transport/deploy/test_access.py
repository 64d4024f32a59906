"""Access to the SuperLink, and timeouts of its connections."""

import asyncio
import contextlib
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import ACCESS_TOKEN_KEY, TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from feal.federation.transport.deploy import access as door
from feal.federation.transport.deploy.access import (
    ACTIVATE_PATH,
    AccessFilter,
    IdleTimeoutProtocol,
    RunKeyAuthenticator,
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
    monkeypatch.setattr(door, "READ_TIMEOUT_SECONDS", 0.3)

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
    monkeypatch.setattr(door, "MIN_BYTES_PER_SECOND", 4)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(HEAD + b"content-length: 4\r\n\r\n")
        for _ in range(4):
            time.sleep(0.2)
            connection.sendall(b"x")
        assert connection.recv(12) == b"HTTP/1.1 200"
