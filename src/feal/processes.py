"""Processes: their memory and processors, a pool of workers, and how workers end with their parent."""

import ctypes
import os
import platform
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Generic, TypeVar

from feal.errors import FealError

_T = TypeVar("_T")
_R = TypeVar("_R")

TASKS_PER_WORKER = 10
"""A worker is replaced after this many tasks, which returns the memory it has accumulated."""
PARENT_CHECK_SECONDS = 0.5
MALLOC_OPTIONS = {-4: 0, -1: -1, -2: 2**26}
"""glibc's M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD, see `retain_memory`."""


class WorkerDiedError(FealError):
    """A worker process ended before it finished its task."""


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def retain_memory() -> None:
    """Have this process keep the memory of tensors and images for the next ones; without glibc do nothing.

    By default glibc returns large blocks to the system, and what replaces them starts with a page fault for every
    4 kB: half of the time of evaluation, a third of training, a quarter of preparing images.
    """
    if platform.libc_ver()[0] == "glibc":
        for option, value in MALLOC_OPTIONS.items():
            ctypes.CDLL(None).mallopt(option, value)


def free_memory() -> int:
    """Return the bytes of memory available to new processes, within the container's limit if there is one."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # not a container, or one without a limit ("max")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0)


def exit_with_parent(parent: int, leave: Callable[[], object] = lambda: os._exit(1)) -> None:
    """Call `leave` in this process as soon as process `parent` is no longer its parent."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        leave()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def run_tasks(
    tasks: Iterable[_T],
    perform: Callable[[_T], _R],
    *,
    processes: int,
    on_tick: Callable[[Sequence[_T]], None] = lambda _: None,
    tick: float = 1.0,
) -> Generator[tuple[_T, _R | Exception], None, None]:
    """Yield each task as it ends, with the result of `perform` or the exception that it raised.

    A worker that dies loses only its own task, whose result is a `WorkerDiedError`. No worker is left behind when
    the caller stops iterating or is interrupted.

    Args:
        tasks: any objects that can be pickled.
        perform: called in a worker process; it can be pickled, too.
        processes: the largest number of workers.
        on_tick: called at least every `tick` seconds with the tasks in progress.
        tick: seconds.
    """
    waiting = deque(tasks)
    workers: list[_Worker[_T, _R]] = []
    try:
        while waiting or workers:
            for worker in [worker for worker in workers if worker.is_idle and (worker.is_worn or not waiting)]:
                worker.stop()
                workers.remove(worker)
            while waiting and len(workers) < processes:
                with _defer_interrupts():
                    workers.append(_Worker(perform))
            for worker in workers:
                if worker.is_idle and waiting:
                    worker.send(waiting.popleft())
            busy = {worker.pipe: worker for worker in workers if not worker.is_idle}
            on_tick([task for worker in busy.values() for task in worker.tasks])
            for pipe in connection.wait(list(busy), timeout=tick) if busy else []:
                yield busy[pipe].receive()  # type: ignore[index]
    finally:
        # A second Ctrl-C must not interrupt the clean-up.
        with _defer_interrupts():
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.stop()


class _Worker(Generic[_T, _R]):
    """The parent's end of one worker process."""

    def __init__(self, perform: Callable[[_T], _R]) -> None:
        context = get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, os.getpid()))
        self._process.start()
        far_end.close()
        self._sent = 0
        self.tasks: list[_T] = []
        self._send(perform)

    @property
    def is_idle(self) -> bool:
        return not self.tasks

    @property
    def is_worn(self) -> bool:
        return self._sent >= TASKS_PER_WORKER

    def send(self, task: _T) -> None:
        self.tasks = [task]
        self._sent += 1
        self._send(task)

    def _send(self, value: object) -> None:
        with suppress(OSError):  # a worker that has just died is noticed when its result is received
            self.pipe.send(value)

    def receive(self) -> tuple[_T, _R | Exception]:
        (task,), self.tasks = self.tasks, []
        try:
            return task, self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            self._sent = TASKS_PER_WORKER
            return task, WorkerDiedError(_describe_exit(self._process.exitcode))

    def terminate(self) -> None:
        self._process.terminate()

    def stop(self) -> None:
        self.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def _describe_exit(code: int | None) -> str:
    if code == -signal.SIGKILL:
        reason = "was killed, possibly because memory ran out: repeat the command with fewer processes."
    elif code is not None and code < 0:
        reason = f"was ended by {signal.Signals(-code).name}: repeat the command to continue."
    else:
        reason = f"exited with code {code}: repeat the command to continue."
    return f"The worker process {reason}"


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Deliver Ctrl-C at the end of the block; processes started inside it begin with Ctrl-C blocked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if received and callable(handler):
        handler(signal.SIGINT, None)


def _serve(pipe: connection.Connection, parent: int) -> None:
    """Perform tasks until the parent stops this process or ends; the parent alone reacts to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    exit_with_parent(parent)
    perform = pipe.recv()
    while True:
        task = pipe.recv()
        try:
            result = perform(task)
        except Exception as error:
            result = error
        pipe.send(result)
