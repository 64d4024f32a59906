"""Parse network addresses, and bypass proxies for this machine."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from feal.errors import FealError

PORT = 9092
ALL_INTERFACES = {4: "0.0.0.0", 6: "::"}
LOOPBACK = ("127.0.0.1", "::1", "localhost")
NO_PROXY = "no_proxy"
# A host is written into certificates and scripts: no characters that have a meaning there.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT into its parts.

    >>> parse_address("hub.example.org:9092"), parse_address("[::1]:80")
    (('hub.example.org', 9092), ('::1', 80))
    """
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (is_ip_address(host) or _HOST.fullmatch(host)) or not _is_port(port):
        raise FealError(f"{address!r} is not an address: write HOST:PORT, for example hub.example.org:{PORT}.")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback; the only accepted name is localhost, if it resolves so.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "hub.example.org")]
    [True, True, True, False, False]
    """
    if is_ip_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" and all(ipaddress.ip_address(found).is_loopback for found in _resolve(host))


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return False


def choose_listen_host(host: str) -> str:
    """Return where to listen to be reached as `host`: the loopback address or all interfaces.

    >>> [choose_listen_host(host) for host in ("localhost", "::1", "10.1.2.3", "2001:db8::1", "hub.example.org")]
    ['127.0.0.1', '::1', '0.0.0.0', '::', '0.0.0.0']
    """
    version = ipaddress.ip_address(host).version if is_ip_address(host) else 4
    if is_loopback(host):
        return host if is_ip_address(host) else "127.0.0.1"
    return ALL_INTERFACES[version]


def find_local_host(host: str) -> str:
    """Return the host by which this machine reaches its own server that listens at `host`.

    >>> find_local_host("0.0.0.0"), find_local_host("10.1.2.3")
    ('127.0.0.1', '10.1.2.3')
    """
    return "127.0.0.1" if host in ALL_INTERFACES.values() else host


def check_loopback(host: str) -> None:
    """Raise a `FealError` for plain text with another machine."""
    if not is_loopback(host):
        raise FealError(
            f"--insecure is for trials on one machine, and {host} is not its loopback address: "
            "omit --insecure and use the certificates."
        )


def list_local_hosts(host: str) -> tuple[str, ...]:
    """Return this machine's loopback names, with `host` if it is one of them.

    >>> list_local_hosts("127.0.0.2")
    ('127.0.0.1', '::1', 'localhost', '127.0.0.2')
    >>> list_local_hosts("hub.example.org") == LOOPBACK
    True
    """
    return (*LOOPBACK, host) if is_loopback(host) and host not in LOOPBACK else LOOPBACK


def extend_no_proxy(*hosts: str) -> dict[str, str]:
    """Return the environment variable that exempts these hosts from the proxy, in addition to its current value.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"NO_PROXY": "hub.example.org"}, clear=True):
    ...     extend_no_proxy("127.0.0.1")
    {'no_proxy': 'hub.example.org,127.0.0.1'}
    """
    current = os.environ.get(NO_PROXY) or os.environ.get(NO_PROXY.upper(), "")
    return {NO_PROXY: ",".join(dict.fromkeys([*filter(None, current.split(",")), *hosts]))}


@contextmanager
def bypass_proxy(*hosts: str) -> Iterator[None]:
    """Exempt these hosts from the proxy for clients created in this block, which then read the environment."""
    before = os.environ.get(NO_PROXY)
    os.environ.update(extend_no_proxy(*hosts))
    try:
        yield
    finally:
        if before is None:
            del os.environ[NO_PROXY]
        else:
            os.environ[NO_PROXY] = before


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _resolve(name: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []
