"""Connections to this machine go straight there, whatever proxy the environment names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EXCEPTIONS = "no_proxy"


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
