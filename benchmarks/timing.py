"""CPU time of interleaved repeats, memory in fresh processes, and tables of both."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


class Measurement(NamedTuple):
    """Time and memory of one form."""

    seconds: float
    extra: int  # bytes needed at the peak beyond those of before the call
    peak: int  # bytes of the whole process at its peak


def cpu_seconds(form: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    form()
    return time.process_time() - start


def median_seconds(forms: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of each form; the forms take turns."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            times[name].append(cpu_seconds(form))
    return {name: statistics.median(values) for name, values in times.items()}


def run_in_fresh_process(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a function of a module in a fresh process with one thread."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as process:
        return process.submit(function, *arguments, **options).result()


def measure(form: Callable[[], object], repeats: int = 1) -> Measurement:
    """Measure the median time, and the memory of the first call."""
    ctypes.CDLL(None).malloc_trim(0)  # what building has left behind would count as there before
    before = read_memory("VmRSS")
    whole = read_memory("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    first = cpu_seconds(form)
    peak = read_memory("VmHWM")
    times = [first, *(cpu_seconds(form) for _ in range(repeats - 1))]
    return Measurement(statistics.median(times), peak - before, max(peak, whole))


def read_memory(field: str) -> int:
    """Return the bytes of a field of this process's status: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def format_seconds(seconds: float) -> str:
    """Format a duration for people."""
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def format_megabytes(size: float) -> str:
    """Format bytes for people."""
    return f"{size / 1e6:,.0f} MB"


def print_table(rows: Iterable[list[str]]) -> None:
    """Print rows in columns, the first to the left and the others to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("   ".join([first.ljust(widths[0]), *cells]), flush=True)
    print()
