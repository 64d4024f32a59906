"""Work that may not take for ever."""

import contextlib
import signal
import threading
import time

import pytest

from feal.errors import FealError
from feal.federation.engines.deadline import OutOfTime, deadline


def test_waiting_ends_and_no_handler_swallows_it() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTime):
        _wait_stubbornly()
    assert time.monotonic() - began < 30


def _wait_stubbornly() -> None:
    with deadline(0.05), contextlib.suppress(Exception):
        threading.Event().wait(60)


def test_an_alarm_of_others_is_given_back() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        with deadline(30):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        assert 400 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_it_needs_the_main_thread() -> None:
    said: list[str] = []

    def elsewhere() -> None:
        try:
            with deadline(1):
                pass
        except FealError as error:
            said.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in said[0]
