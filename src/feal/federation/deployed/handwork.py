"""The process at a site that does the work of messages: it imports torch once, and may be killed at any moment.

`python -m feal.federation.deployed.handwork PARENT SOCKET NAME DATA STATE`: for every pair of frames (id of the
run, request) on the socket one comes back, which begins with `REPLY` or with `LOST`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from feal.deployment.parent import watch_parent
from feal.errors import FealError
from feal.federation import messages
from feal.federation.engines.same_disk import answer as honest_answer
from feal.files import write_text

REPLY, LOST, READY = b"R", b"L", b"Y"
_RUN = re.compile(r"[0-9a-f]{32}")

Answer = Callable[..., bytes]


def main(answer: Answer = honest_answer) -> None:
    """Answer messages until nobody sends any more."""
    parent, socket, name, data, state = sys.argv[1:]
    watch_parent(int(parent), lambda: os._exit(1))
    connection = Connection(int(socket))
    try:
        connection.send_bytes(READY)
        while True:
            run, request = connection.recv_bytes().decode(), connection.recv_bytes()
            connection.send_bytes(_framed(answer, name, request, run=run, data=Path(data), state=Path(state)))
    except (EOFError, ConnectionError):
        return


def run_folder(state: Path, run: str) -> Path:
    """Where a site keeps what concerns one run; an id that is none is a `FealError`."""
    if not _RUN.fullmatch(run):
        raise FealError("The coordinator's message names no run: are all versions the same?")
    return state / "runs" / run


def _framed(answer: Answer, name: str, request: bytes, *, run: str, data: Path, state: Path) -> bytes:
    try:
        folder = run_folder(state, run)
        reply = answer(name, request, data=data, folder=folder / "sites")
        _note_configuration(folder, request)
        return REPLY + reply
    except FealError as error:
        # Nothing of the site's data has been looked at: a Site answers for its own failures itself.
        return LOST + f"Site {name}: {error}".encode()
    except Exception as error:
        print(f"Site {name} failed with {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return LOST + f"Site {name} failed with {type(error).__name__}: its own log says why.".encode()


def _note_configuration(folder: Path, request: bytes) -> None:
    """So that `feal labels` can be asked about the run at this site."""
    path = folder / "config.yaml"
    if not path.exists():
        asked = messages.decode_request(request)
        if isinstance(asked, messages.Join):
            write_text(path, yaml.safe_dump(asked.configuration, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    main()
