"""The worker process of a site, which imports torch once and may be killed at any moment.

`python -m feal.federation.transport.deploy.worker_main PARENT SOCKET NAME DATA STATE [PLUGIN ...]`: for every
pair of frames (run id, request) on the socket it sends one frame that begins with `REPLY` or `FAILURE`. A run may
use only built-in classes and the plugins named here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from feal.errors import FealError, ShareableError
from feal.federation import protocol as messages
from feal.federation.site.site import handle_request
from feal.federation.transport.base import RequestHandler
from feal.processes import exit_with_parent
from feal.rundir.journal import write_config
from feal.rundir.layout import RunDirectory
from feal.settings import Settings
from feal.tensors import read_metadata

REPLY, FAILURE, READY = b"R", b"L", b"Y"
_RUN = re.compile(r"[0-9a-f]{32}")


def run_worker(handler: RequestHandler = handle_request) -> None:
    """Answer messages until the parent closes the socket."""
    parent, socket, name, data, state, *plugins = sys.argv[1:]
    exit_with_parent(int(parent))
    connection = Connection(int(socket))
    try:
        connection.send_bytes(READY)
        while True:
            run, request = connection.recv_bytes().decode(), connection.recv_bytes()
            frame = answer_frame(
                handler,
                name,
                request,
                run=run,
                data=Path(data),
                state=Path(state),
                plugins=plugins,
            )
            connection.send_bytes(frame)
    except (EOFError, ConnectionError):
        return


def find_run_directory(state: Path, run: str) -> Path:
    """Return a site's directory of a run; raise a `ShareableError` if the id is invalid."""
    if not _RUN.fullmatch(run):
        raise ShareableError(
            "The coordinator's message names no run: install the same version of feal everywhere."
        )
    return state / "runs" / run


def answer_frame(
    handler: RequestHandler,
    name: str,
    request: bytes,
    *,
    run: str,
    data: Path,
    state: Path,
    plugins: Collection[str] = (),
) -> bytes:
    """Return the frame for the coordinator: the reply, or the reason for its absence without private details."""
    try:
        folder = find_run_directory(state, run)
        join = _decode_join(request)
        if join is not None:
            _check_plugins(join.configuration, name, plugins)
        reply = handler(name, request, data=data, folder=RunDirectory(folder).sites)
        if join is not None:
            _write_configuration(folder, join, data)
        return REPLY + reply
    except ShareableError as error:
        return FAILURE + str(error).encode()
    except Exception as error:
        print(f"Site {name} failed with {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        what = (
            "could not start to answer" if isinstance(error, FealError) else f"failed with {type(error).__name__}"
        )
        return FAILURE + f"Site {name} {what}: see logs/site.log there.".encode()


def _decode_join(request: bytes) -> messages.Join | None:
    """Return the request if it is a `Join`; the weights of other requests are not decoded."""
    kind = json.loads(read_metadata(request).get("message", "{}")).get("kind")
    asked = messages.decode_request(request) if kind == messages.Join.kind else None
    return asked if isinstance(asked, messages.Join) else None


def _check_plugins(configuration: Mapping[str, Any], name: str, allowed: Collection[str]) -> None:
    """Raise a `ShareableError` for a plugin that the site did not allow."""
    settings = Settings.model_validate(configuration)
    for plugin in (settings.strategy.name, settings.model.name, *settings.metrics):
        if ":" in plugin and plugin not in allowed:
            raise ShareableError(
                f"Site {name} runs only code that it allows: use built-in classes, "
                f"or add '{plugin}' to plugins in its site.yaml and restart the site."
            )


def _write_configuration(folder: Path, join: messages.Join, data: Path) -> None:
    """Write the configuration, so that `feal labels` works at this site and finds its data."""
    run = RunDirectory(folder)
    if not run.config.exists():
        write_config(run, {**join.configuration, "dataset": str(data)})


if __name__ == "__main__":
    run_worker()
