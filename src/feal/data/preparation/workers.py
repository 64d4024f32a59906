"""Many chunks decoded at once, in processes that end with this one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from feal.classes import load_file, own_file
from feal.data.preparation.chunks import Chunk, decode
from feal.data.preparation.contract import Download
from feal.errors import FealError
from feal.processes import serve_parent

_WORTH = 15.0
"""Seconds of decoding below which the start of processes, which import much, would take longer than they save."""


def decoded(
    download: Download, chunks: Sequence[Chunk], *, size: int, folder: Path, processes: int
) -> Iterator[Chunk]:
    """Decode what is not decoded yet and give every chunk, in order.

    Pixels stay with the process that decoded them, which writes them to the chunk's place; a few chunks are under
    way at any moment, however many there are.

    Raises:
        FealError: a process died.
    """
    todo = [chunk for chunk in chunks if not chunk.done()]
    if processes <= 1 or not _worth_it(download, todo, size=size, folder=folder):
        for chunk in chunks:
            if not chunk.done():
                decode(download, chunk, size=size, folder=folder)
            yield chunk
        return
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(own_file(type(download)),)
    )
    try:
        yield from _in_order(pool, download, chunks, size=size, folder=folder, ahead=2 * processes)
    except BrokenProcessPool as error:
        raise FealError(
            "A process that decodes pictures died, perhaps for want of memory: repeat the command with fewer "
            "--processes; what is decoded already is kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _worth_it(download: Download, todo: Sequence[Chunk], *, size: int, folder: Path) -> bool:
    """Whether the work is long enough for processes to be started, by the time that its first chunk takes here."""
    if len(todo) < 2:
        return False
    start = time.perf_counter()
    decode(download, todo[0], size=size, folder=folder)
    return (time.perf_counter() - start) * (len(todo) - 1) >= _WORTH


def _in_order(
    pool: ProcessPoolExecutor, download: Download, chunks: Sequence[Chunk], *, size: int, folder: Path, ahead: int
) -> Iterator[Chunk]:
    waiting: deque[tuple[Chunk, Future[None] | None]] = deque()
    for chunk in chunks:
        future = None if chunk.done() else pool.submit(decode, download, chunk, size=size, folder=folder)
        waiting.append((chunk, future))
        if len(waiting) >= ahead:
            yield _next(waiting)
    while waiting:
        yield _next(waiting)


def _next(waiting: deque[tuple[Chunk, Future[None] | None]]) -> Chunk:
    chunk, future = waiting.popleft()
    if future is not None:
        future.result()
    return chunk


def _begin(own: Path | None) -> None:
    """Make ready for work."""
    serve_parent()
    if own is not None:
        load_file(own, kind="data set")
