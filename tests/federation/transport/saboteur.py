"""A deployed site whose worker process answers some messages wrongly, as a file specifies."""

import json
import os
import sys
import time
from pathlib import Path
from unittest.mock import patch

from feal.federation import protocol as messages
from feal.federation.site import site
from feal.federation.site.site import handle_request
from feal.federation.transport.deploy import worker
from feal.federation.transport.deploy.config import read_site_config
from feal.federation.transport.deploy.site_daemon import serve_site
from tests.federation.transport import sabotage

SLOW_SECONDS = 15.0
WORKER = (sys.executable, "-m", "tests.federation.transport.saboteur", "worker")


def order(path: Path, *orders: tuple[str, str, int, int]) -> None:
    """Have the site fail at messages: fault, kind of message, round and step of each."""
    path.write_text(json.dumps(orders))


def answer(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """Return the site's reply, made faulty where the file says so."""

    def honestly() -> bytes:
        return handle_request(name, request, data=data, folder=folder)

    asked = messages.decode_request(request)
    for fault, kind, round_, step in _orders():
        if (kind, round_, step) == (asked.kind, asked.round, asked.step):
            if fault == "slow":
                time.sleep(SLOW_SECONDS)
                return honestly()
            if fault == "another version":
                with patch.object(site, "__version__", "0.0.1"):
                    return honestly()
            return sabotage.FAULTS[fault](honestly, folder / name)
    return honestly()


def _orders() -> list[tuple[str, str, int, int]]:
    path = Path(os.environ["SABOTAGE"])
    return [tuple(entry) for entry in json.loads(path.read_text())] if path.exists() else []


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        del sys.argv[1]
        worker.run_worker(answer)
    else:
        place = read_site_config(Path(sys.argv[1]), {"data": str(Path(sys.argv[1]) / "prepared")})
        serve_site(place, insecure=False, notify=lambda text: print(text, flush=True), command=WORKER)
