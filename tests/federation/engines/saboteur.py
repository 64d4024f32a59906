"""A deployed site that spoils some messages, as a file says; and its hand, which does the spoiling."""

import json
import os
import sys
import time
from pathlib import Path
from unittest.mock import patch

from feal.deployment.places import site_place
from feal.federation import messages, site
from feal.federation.deployed import handwork
from feal.federation.deployed.hospital import serve
from feal.federation.engines import same_disk
from tests.federation.engines import sabotage

SLOW_SECONDS = 15.0
HAND = (sys.executable, "-m", "tests.federation.engines.saboteur", "hand")


def order(path: Path, *orders: tuple[str, str, int, int]) -> None:
    """Have the site spoil messages: fault, kind of message, round and step of each."""
    path.write_text(json.dumps(orders))


def answer(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """The site's own answer, spoiled where the orders say so."""

    def honestly() -> bytes:
        return same_disk.answer(name, request, data=data, folder=folder)

    asked = messages.decode_request(request)
    for fault, kind, round_, step in _orders():
        if (kind, round_, step) == (asked.kind, asked.round, asked.step):
            if fault == "slow":
                time.sleep(SLOW_SECONDS)
                return honestly()
            if fault == "another version":
                with patch.object(site, "VERSION", "0.0.1"):
                    return honestly()
            return sabotage.FAULTS[fault](honestly, folder / name)
    return honestly()


def _orders() -> list[tuple[str, str, int, int]]:
    path = Path(os.environ["SABOTAGE"])
    return [tuple(entry) for entry in json.loads(path.read_text())] if path.exists() else []


if __name__ == "__main__":
    if sys.argv[1] == "hand":
        del sys.argv[1]
        handwork.main(answer)
    else:
        place = site_place(Path(sys.argv[1]), {"data": str(Path(sys.argv[1]) / "prepared")})
        serve(place, insecure=False, say=lambda text: print(text, flush=True), hand=HAND)
