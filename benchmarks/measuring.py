"""CPU time of interleaved repeats, and tables of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping


def timed(form: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    form()
    return time.process_time() - start


def medians(forms: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """CPU seconds of each form, in turn rather than one after the other."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            times[name].append(timed(form))
    return {name: statistics.median(values) for name, values in times.items()}


def in_words(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def table(rows: Iterable[list[str]]) -> None:
    """Print rows in columns, the first to the left and the others to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("   ".join([first.ljust(widths[0]), *cells]))
    print()
