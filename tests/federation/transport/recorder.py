"""A man in the middle with the server's key, who records the decrypted traffic."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

CHUNK = 2**16
PATIENCE = 5.0

T = TypeVar("T")
Interfere = Callable[[str, bytes, int], bool]
"""Called with direction, data and the site's port; true cuts the connection instead of passing the data on."""


class Recorder:
    """Forward connections to a TLS server and record both directions: `up` to the server, `down` from it.

    One thread does it all: OpenSSL crashes if two threads use the same TLS connection.
    """

    def __init__(self, *, target: int, certificates: Path, keep: bool = True) -> None:
        self.up, self.down = bytearray(), bytearray()
        self.counts = {"up": 0, "down": 0}
        self.interfere: Interfere = lambda way, data, port: False
        self._keep = keep
        self._target = target
        self._client = ssl.create_default_context(cafile=str(certificates / "authority.crt"))
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._listener = self._done(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=server))
        self.port = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close all connections."""
        if self._loop.is_closed():
            return
        self._done(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _done(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        self._listener.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0.1)  # transports that were let go are closed at the loop's next turns

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            with contextlib.suppress(OSError):  # the coordinator is away
                await self._connect(reader, writer)
        except asyncio.CancelledError:
            pass  # as `close` wants it
        finally:
            writer.transport.abort()
            self._connections.discard(connection)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        from_server, to_server = await asyncio.open_connection(
            "127.0.0.1", self._target, ssl=self._client, server_hostname="127.0.0.1"
        )
        ways = {
            asyncio.ensure_future(self._pass_on(reader, to_server, "up", port)),
            asyncio.ensure_future(self._pass_on(from_server, writer, "down", port)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for end in (writer, to_server):
                await _sent(end)
        finally:
            for way in ways:
                way.cancel()
            to_server.transport.abort()

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: str, port: int
    ) -> None:
        with contextlib.suppress(OSError):
            while (data := await source.read(CHUNK)) and not self.interfere(way, data, port):
                self.counts[way] += len(data)
                if self._keep:
                    (self.up if way == "up" else self.down).extend(data)
                sink.write(data)
                await sink.drain()


async def _sent(end: asyncio.StreamWriter) -> None:
    """Close a connection after everything was sent."""
    end.close()
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(end.wait_closed(), PATIENCE)
