"""Where a machine is reached."""

from __future__ import annotations

import ipaddress
import re
import socket

from feal.errors import FealError

PORT = 9092
ALL_INTERFACES = {4: "0.0.0.0", 6: "::"}
# A host goes into certificates and scripts: nothing that a shell or a certificate's settings would read otherwise.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address.

    >>> host_and_port("hub.example.org:9092"), host_and_port("[::1]:80")
    (('hub.example.org', 9092), ('::1', 80))
    """
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (is_address(host) or _HOST.fullmatch(host)) or not _is_port(port):
        raise FealError(f"{address!r} is no address: write HOST:PORT, for example hub.example.org:{PORT}.")
    return host, int(port)


def joined_address(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached there; of names that is believed of localhost alone, once looked up.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "hub.example.org")]
    [True, True, True, False, False]
    """
    if is_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" and all(ipaddress.ip_address(found).is_loopback for found in _looked_up(host))


def is_address(host: str) -> bool:
    """Whether a host is given by its number, not by a name."""
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return False


def listening_host(host: str) -> str:
    """Where a machine listens whom others reach as `host`: on its loopback address, or on all interfaces.

    >>> [listening_host(host) for host in ("localhost", "::1", "10.1.2.3", "2001:db8::1", "hub.example.org")]
    ['127.0.0.1', '::1', '0.0.0.0', '::', '0.0.0.0']
    """
    version = ipaddress.ip_address(host).version if is_address(host) else 4
    if is_loopback(host):
        return host if is_address(host) else "127.0.0.1"
    return ALL_INTERFACES[version]


def own_host(host: str) -> str:
    """Where this machine itself reaches a server of its own that listens at `host`.

    >>> own_host("0.0.0.0"), own_host("10.1.2.3")
    ('127.0.0.1', '10.1.2.3')
    """
    return "127.0.0.1" if host in ALL_INTERFACES.values() else host


def check_plain(host: str) -> None:
    """Refuse plain text with any other machine."""
    if not is_loopback(host):
        raise FealError(
            f"--insecure is for trials on one machine, and {host} is not its loopback address: "
            "leave --insecure out and use the certificates."
        )


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _looked_up(name: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []
