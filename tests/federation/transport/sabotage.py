"""A site that answers some messages wrongly, as a file in the run directory specifies."""

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from feal import fileio as files
from feal.federation import protocol as messages
from feal.federation.site import site
from feal.federation.site.handlers import MessageHandler

ORDERS = ".sabotage.json"
HANG_SECONDS = 120.0


def hang() -> None:
    """Do nothing for longer than any timeout."""
    time.sleep(HANG_SECONDS)


def write_faults(run: Path, faults: Mapping[int, str], *, site: str, kind: str, round_: int) -> None:
    """Have a site fail at a kind of message: the fault of each step."""
    run.mkdir(exist_ok=True)
    orders = {"faults": {str(step): fault for step, fault in faults.items()}}
    (run / ORDERS).write_text(json.dumps({**orders, "site": site, "kind": kind, "round": round_}))


def handle_request(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """Return the site's reply, made faulty where the file says so."""
    orders = json.loads((folder.parent / ORDERS).read_text())
    asked = messages.decode_request(request)
    place = {"site": name, "kind": asked.kind, "round": asked.round}

    def honestly() -> bytes:
        return site.handle_request(name, request, data=data, folder=folder)

    fault = orders["faults"].get(str(asked.step))
    if fault is None or any(orders[key] != value for key, value in place.items()):
        return honestly()
    return FAULTS[fault](honestly, folder / name)


def _raises(honestly: Callable[[], bytes], folder: Path) -> bytes:
    with patch.object(MessageHandler, "handle", side_effect=ZeroDivisionError("sample 17")):
        return honestly()


def _hangs(honestly: Callable[[], bytes], folder: Path) -> bytes:
    with patch.object(MessageHandler, "handle", side_effect=lambda *_: hang()):
        return honestly()


def _disk_full(honestly: Callable[[], bytes], folder: Path) -> bytes:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with patch.object(files, "sync_file", full):
        return honestly()


def _locked(honestly: Callable[[], bytes], folder: Path) -> bytes:
    with _held(folder / "site.sqlite"):
        return honestly()


@contextmanager
def _held(database: Path) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def _cut_short(honestly: Callable[[], bytes], folder: Path) -> bytes:
    database = folder / "site.sqlite"
    os.truncate(database, database.stat().st_size // 2)
    return honestly()


def _with_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Callable[[], bytes], Path], bytes]:
    def lies(honestly: Callable[[], bytes], folder: Path) -> bytes:
        reply = messages.decode_reply(honestly())
        assert reply.weights is not None
        name = next(name for name in sorted(reply.weights) if reply.weights[name].ndim > 1)
        return messages.encode(
            reply.model_copy(update={"weights": {**reply.weights, name: change(reply.weights[name])}})
        )

    return lies


def _unexpected(honestly: Callable[[], bytes], folder: Path) -> bytes:
    reply = messages.decode_reply(honestly())
    odd = reply.model_copy(update={"weights": {**(reply.weights or {}), "odd": torch.ones(3)}})
    data = messages.encode(odd)
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length].rstrip().replace(rb"\"labelled\"", rb"\"mood\": \"fine\", \"labelled\"")
    return len(head).to_bytes(8, "little") + head + data[8 + length :]


def _another_key(honestly: Callable[[], bytes], folder: Path) -> bytes:
    return messages.encode(messages.decode_reply(honestly()).model_copy(update={"key": "another"}))


def _garbage(honestly: Callable[[], bytes], folder: Path) -> bytes:
    return honestly()[:100]


FAULTS: dict[str, Callable[[Callable[[], bytes], Path], bytes]] = {
    "raising": _raises,
    "hanging": _hangs,
    "NaN weights": _with_weights(lambda tensor: tensor * float("nan")),
    "wrong shapes": _with_weights(lambda tensor: tensor.reshape(-1)),
    "disk full": _disk_full,
    "SQLite locked": _locked,
    "SQLite cut short": _cut_short,
    "unexpected names": _unexpected,
    "another key": _another_key,
    "garbage": _garbage,
}
