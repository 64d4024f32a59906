"""Sites that are rebuilt from their disk for every message, so that nothing else decides what they reply."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from feal.federation.site.site import handle_request
from feal.federation.transport import TRANSPORTS, InProcessTransport


class RebuildingInProcess(InProcessTransport):
    """Rebuild a site from its disk for each message."""

    handler = staticmethod(handle_request)

    def __init__(self, params: Any, *, data: Path, **options: Any) -> None:
        super().__init__(params, data=data, **options)
        self._root = data

    def _handle(self, name: str, request: bytes) -> bytes:
        return type(self).handler(name, request, data=self._root, folder=self._folder)


@contextmanager
def rebuilt_sites() -> Iterator[None]:
    """Rebuild the sites of every in-process run in this block for each message."""
    with patch.dict(TRANSPORTS._entries, {"in-process": RebuildingInProcess}):
        yield
