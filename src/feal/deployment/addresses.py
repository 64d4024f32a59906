"""Where a machine is reached."""

from __future__ import annotations

import ipaddress

from feal.errors import FealError

PORT = 9092


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of an address.

    >>> host_and_port("hub.example.org:9092"), host_and_port("[::1]:80")
    (('hub.example.org', 9092), ('::1', 80))
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise FealError(f"'{address}' is no address: write HOST:PORT, for example hub.example.org:{PORT}.")
    return host.strip("[]"), int(port)


def joined_address(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached there.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "hub.example.org")]
    [True, True, True, False, False]
    """
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def is_address(host: str) -> bool:
    """Whether a host is given by its number, not by a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_plain(host: str) -> None:
    """Refuse plain text with any other machine."""
    if not is_loopback(host):
        raise FealError(
            f"--insecure is for trials on one machine, and {host} is not its loopback address: "
            "leave --insecure out and use the certificates."
        )
