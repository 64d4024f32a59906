"""Connections to this machine go straight there, whatever proxy the environment names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from feal.deployment.addresses import is_loopback

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EXCEPTIONS = "no_proxy"


def own_hosts(host: str) -> tuple[str, ...]:
    """Names of this machine, with that by which a host is reached if it is this machine.

    >>> own_hosts("127.0.0.2")
    ('127.0.0.1', '::1', 'localhost', '127.0.0.2')
    >>> own_hosts("hub.example.org") == LOOPBACK
    True
    """
    return (*LOOPBACK, host) if is_loopback(host) and host not in LOOPBACK else LOOPBACK


def direct(*hosts: str) -> dict[str, str]:
    """The variable by which a process asks no proxy for these hosts, nor for those that it is told to leave out.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"NO_PROXY": "hub.example.org"}, clear=True):
    ...     direct("127.0.0.1")
    {'no_proxy': 'hub.example.org,127.0.0.1'}
    """
    told = os.environ.get(EXCEPTIONS) or os.environ.get(EXCEPTIONS.upper(), "")
    return {EXCEPTIONS: ",".join(dict.fromkeys([*filter(None, told.split(",")), *hosts]))}


@contextmanager
def directly(*hosts: str) -> Iterator[None]:
    """Clients that are made inside ask no proxy for these hosts: they look at the environment as they are made."""
    before = os.environ.get(EXCEPTIONS)
    os.environ.update(direct(*hosts))
    try:
        yield
    finally:
        if before is None:
            del os.environ[EXCEPTIONS]
        else:
            os.environ[EXCEPTIONS] = before
