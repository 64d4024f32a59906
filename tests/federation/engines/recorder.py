"""A man in the middle who holds the server's key: he sees what sites and coordinator say in the clear."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

CHUNK = 2**16

Interfere = Callable[[str, bytes, int], bool]
"""Is told which way what goes, and the port of the site's end; true has the connection cut in its place."""


class Recorder:
    """Passes connections on to a TLS server and keeps what goes each way: `up` to the server, `down` from it."""

    def __init__(self, *, target: int, certificates: Path, keep: bool = True) -> None:
        self.up, self.down = bytearray(), bytearray()
        self.counts = {"up": 0, "down": 0}
        self.interfere: Interfere = lambda way, data, port: False
        self._keep = keep
        self._target = target
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        self._client = ssl.create_default_context(cafile=str(certificates / "authority.crt"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Let go of all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            _cut(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError):
            port = raw.getpeername()[1]
            here = self._server.wrap_socket(raw, server_side=True)
            try:
                there = self._client.wrap_socket(
                    socket.create_connection(("127.0.0.1", self._target)), server_hostname="127.0.0.1"
                )
            except OSError:
                here.close()  # the coordinator is away
                return
            self._open |= {here, there}
            threading.Thread(target=self._pass_on, args=(here, there, "up", port), daemon=True).start()
            self._pass_on(there, here, "down", port)

    def _pass_on(self, source: ssl.SSLSocket, sink: ssl.SSLSocket, way: str, port: int) -> None:
        try:
            while (data := source.recv(CHUNK)) and not self.interfere(way, data, port):
                with self._lock:
                    self.counts[way] += len(data)
                    if self._keep:
                        (self.up if way == "up" else self.down).extend(data)
                sink.sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            for connection in (source, sink):
                _cut(connection)
                self._open.discard(connection)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # whoever waits in another thread for what comes notices
    with contextlib.suppress(OSError):
        connection.close()
