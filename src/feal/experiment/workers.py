"""A few processes that take one task after the other; none of them outlives the one that started them."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from typing import Generic, TypeVar

from feal.processes import serve_parent

T = TypeVar("T")
Perform = Callable[[T], str | None]
"""Does a task in another process; what went wrong, if anything did."""

TASKS_OF_A_PROCESS = 10
"""A process is replaced after so many, and what it has piled up goes back to the machine."""


def work_off(
    tasks: Iterable[T],
    perform: Perform[T],
    *,
    processes: int,
    moved: Callable[[Sequence[T]], None] = lambda _: None,
    tick: float = 1.0,
) -> Generator[tuple[T, str | None], None, None]:
    """Each task as it ends, with what went wrong; `moved` hears every `tick` seconds what is under way.

    A process that dies takes only its own task with it. Whoever stops to iterate, or is interrupted, leaves no
    process behind.
    """
    waiting = deque(tasks)
    workers: list[_Worker[T]] = []
    try:
        while waiting or workers:
            for worker in [worker for worker in workers if worker.worn or not waiting]:
                if worker.task is None:
                    worker.end()
                    workers.remove(worker)
            while waiting and len(workers) < processes:
                with _interruptions_later():
                    workers.append(_Worker(perform))
            for worker in workers:
                if worker.task is None and waiting:
                    worker.give(waiting.popleft())
            busy = [worker for worker in workers if worker.task is not None]
            moved([worker.task for worker in busy if worker.task is not None])
            ready = connection.wait([worker.pipe for worker in busy], timeout=tick) if busy else []
            for worker in busy:
                if worker.pipe in ready:
                    yield worker.answer()
    finally:
        # Whoever presses Ctrl-C again must not leave those behind that are still to be ended.
        with _interruptions_later():
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.end()


class _Worker(Generic[T]):
    """One process, seen from the one that started it."""

    def __init__(self, perform: Perform[T]) -> None:
        context = get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, perform))
        with _unheard_interruptions():
            self._process.start()
        far_end.close()
        self._given = 0
        self.task: T | None = None
        self.worn = False

    def give(self, task: T) -> None:
        self.task = task
        self._given += 1
        self.worn = self._given >= TASKS_OF_A_PROCESS
        with suppress(OSError):  # a process that died just now is found out by its answer
            self.pipe.send(task)

    def answer(self) -> tuple[T, str | None]:
        assert self.task is not None
        task, self.task = self.task, None
        try:
            return task, self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            self.worn = True
            return task, _death(self._process.exitcode)

    def terminate(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        self.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def _death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        how = "was killed, perhaps for want of memory: repeat the command, with a smaller -j if it happens again."
    elif code is not None and code < 0:
        how = f"was ended by {signal.Signals(-code).name}: repeat the command to go on."
    else:
        how = f"ended by itself with code {code}: repeat the command to go on."
    return f"Its process {how}"


@contextmanager
def _interruptions_later() -> Iterator[None]:
    """Ctrl-C is heard at the end of the block, when what was begun in it is known to whoever has to end it."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard and callable(before):
        before(signal.SIGINT, None)


@contextmanager
def _unheard_interruptions() -> Iterator[None]:
    """A process started in here does not hear Ctrl-C, which would have it print where it was."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: connection.Connection, perform: Perform[T]) -> None:
    """The process: it ends when it is told to, and with its parent, however that ends."""
    serve_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    while True:
        pipe.send(perform(pipe.recv()))
