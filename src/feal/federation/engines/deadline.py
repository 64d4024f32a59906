"""A limit on how long work in this process may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from feal.errors import FealError

AGAIN_SECONDS = 5.0
"""The alarm rings again, in case it rang where nothing can be raised."""


class OutOfTime(BaseException):
    """The work took too long; no `except Exception` on the way may swallow it."""


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise `OutOfTime` in the block once it has taken that long; None sets no limit.

    An alarm signal ends waiting and sleeping too, which a look at the clock between two steps would not.

    Raises:
        FealError: this is not the main thread, where alone a signal arrives.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise FealError("round_timeout in one process needs the main thread: leave it out, or use another engine.")

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    began = time.monotonic()
    others, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        # Whoever else had set an alarm gets it, late if need be.
        left = max(others - (time.monotonic() - began), 1e-3) if others else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, interval)
