"""The process at a site that does the work of messages: it imports torch once, and may be killed at any moment.

`python -m feal.federation.deployed.handwork PARENT SOCKET NAME DATA STATE [STRATEGY ...]`: for every pair of
frames (id of the run, request) on the socket one comes back, which begins with `REPLY` or with `LOST`. Of
strategies that are not built in, a run may name these only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from feal.deployment.parent import watch_parent
from feal.errors import FealError, RefusalError
from feal.federation import messages
from feal.federation.engines.same_disk import answer as honest_answer
from feal.files import write_text
from feal.tensors import metadata_of

REPLY, LOST, READY = b"R", b"L", b"Y"
_RUN = re.compile(r"[0-9a-f]{32}")

Answer = Callable[..., bytes]


def main(answer: Answer = honest_answer) -> None:
    """Answer messages until nobody sends any more."""
    parent, socket, name, data, state, *strategies = sys.argv[1:]
    watch_parent(int(parent), lambda: os._exit(1))
    connection = Connection(int(socket))
    try:
        connection.send_bytes(READY)
        while True:
            run, request = connection.recv_bytes().decode(), connection.recv_bytes()
            places = {"data": Path(data), "state": Path(state)}
            connection.send_bytes(framed(answer, name, request, run=run, strategies=strategies, **places))
    except (EOFError, ConnectionError):
        return


def run_folder(state: Path, run: str) -> Path:
    """Where a site keeps what concerns one run; an id that is none is a `RefusalError`."""
    if not _RUN.fullmatch(run):
        raise RefusalError("The coordinator's message names no run: are all versions the same?")
    return state / "runs" / run


def framed(
    answer: Answer,
    name: str,
    request: bytes,
    *,
    run: str,
    data: Path,
    state: Path,
    strategies: Collection[str] = (),
) -> bytes:
    """A frame for the coordinator: the reply, or why there is none, with nothing of the site's data or paths."""
    try:
        folder = run_folder(state, run)
        join = _join(request)
        if join is not None:
            _check_strategy(str(join.configuration.get("strategy")), name, strategies)
        reply = answer(name, request, data=data, folder=folder / "sites")
        if join is not None:
            _note_configuration(folder, join, data)
        return REPLY + reply
    except RefusalError as error:
        return LOST + str(error).encode()
    except Exception as error:
        print(f"Site {name} failed with {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        what = (
            "could not begin to answer" if isinstance(error, FealError) else f"failed with {type(error).__name__}"
        )
        return LOST + f"Site {name} {what}: logs/site.log there says why.".encode()


def _join(request: bytes) -> messages.Join | None:
    """The request if it is one to join, without a look at the weights of any other."""
    kind = json.loads(metadata_of(request).get("message", "{}")).get("kind")
    asked = messages.decode_request(request) if kind == messages.Join.kind else None
    return asked if isinstance(asked, messages.Join) else None


def _check_strategy(strategy: str, name: str, allowed: Collection[str]) -> None:
    """Refuse to run a file only because the coordinator names it."""
    if ":" in strategy and strategy not in allowed:
        raise RefusalError(
            f"Site {name} runs no code that is not its own choice: take a built-in strategy, "
            f"or enter '{strategy}' under strategies in its site.yaml and start it again."
        )


def _note_configuration(folder: Path, join: messages.Join, data: Path) -> None:
    """So that `feal labels` can be asked about the run at this site, and finds this site's data."""
    path = folder / "config.yaml"
    if not path.exists():
        noted = {**join.configuration, "dataset": str(data)}
        write_text(path, yaml.safe_dump(noted, sort_keys=False, allow_unicode=True))


if __name__ == "__main__":
    main()
