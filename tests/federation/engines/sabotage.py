"""A site that does its work but for one message, which it spoils in a way that a file in the run's folder says."""

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from feal import files
from feal.federation import messages
from feal.federation.duties import Duties
from feal.federation.engines import same_disk

ORDERS = ".sabotage.json"
HANG_SECONDS = 120.0


def order(run: Path, fault: str, *, site: str, kind: str, round_: int, steps: list[int]) -> None:
    """Have a site spoil its answers to a kind of message."""
    run.mkdir(exist_ok=True)
    orders = {"fault": fault, "site": site, "kind": kind, "round": round_, "steps": steps}
    (run / ORDERS).write_text(json.dumps(orders))


def answer(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """The site's own answer, spoiled where the orders say so."""
    orders = json.loads((folder.parent / ORDERS).read_text())
    asked = messages.decode_request(request)
    place = {"site": name, "kind": asked.kind, "round": asked.round}

    def honestly() -> bytes:
        return same_disk.answer(name, request, data=data, folder=folder)

    if any(orders[key] != value for key, value in place.items()) or asked.step not in orders["steps"]:
        return honestly()
    return FAULTS[orders["fault"]](honestly, folder / name)


def _raises(honestly: Callable[[], bytes], folder: Path) -> bytes:
    with patch.object(Duties, "do", side_effect=ZeroDivisionError("sample 17")):
        return honestly()


def _hangs(honestly: Callable[[], bytes], folder: Path) -> bytes:
    with patch.object(Duties, "do", side_effect=lambda request: time.sleep(HANG_SECONDS)):
        return honestly()


def _disk_full(honestly: Callable[[], bytes], folder: Path) -> bytes:
    def full(*paths: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with patch.object(files, "publish", full):
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
