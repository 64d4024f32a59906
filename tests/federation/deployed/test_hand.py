"""The process that does a site's work, and what comes of its end."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.deployed.hand import Hand
from feal.federation.deployed.handwork import run_folder
from feal.federation.engines.contract import Lost, out_of_time
from tests.federation.engines.consortium import until

RUN = "0" * 32
WORK = """
import os, sys, time
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[2]))
connection.send_bytes(b"Y")
while True:
    run, request = connection.recv_bytes(), connection.recv_bytes()
    if request == b"hang":
        time.sleep(60)
    if request == b"die":
        os._exit(1)
    connection.send_bytes(b"Lno" if request == b"fail" else b"R" + run + request + sys.argv[3].encode())
"""


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    with (tmp_path / "log").open("wb") as log:
        made = Hand("birch", data=tmp_path, state=tmp_path, log=log, command=[sys.executable, "-c", WORK])
        yield made
        made.close()


def test_it_answers_and_is_made_anew_after_it_hung_or_died(hand: Hand) -> None:
    well = RUN.encode() + b"ask" + b"birch"
    assert hand.answer(RUN, b"ask", timeout=None) == well
    assert hand.answer(RUN, b"fail", timeout=10) == Lost(reason="no")
    assert hand.answer(RUN, b"hang", timeout=0.2) == out_of_time("birch", 0.2)
    assert hand.answer(RUN, b"ask", timeout=10) == well
    gone = Lost(reason="Site birch's process ended before it answered: killed, or out of memory.")
    assert hand.answer(RUN, b"die", timeout=None) == gone
    assert hand.answer(RUN, b"ask", timeout=None) == well


def test_what_is_asked_meanwhile_comes_after_and_an_end_is_the_end_of_all(hand: Hand) -> None:
    first, second = (hand.ask(RUN, request, timeout=None) for request in (b"one", b"two"))
    assert (first.result(), second.result()) == (RUN.encode() + b"onebirch", RUN.encode() + b"twobirch")
    hanging, waiting = hand.ask(RUN, b"hang", timeout=None), hand.ask(RUN, b"ask", timeout=None)
    until(hanging.running, "its turn")
    hand.close()
    assert isinstance(hanging.result(timeout=0), Lost)
    assert waiting.cancelled()


def test_one_that_cannot_start_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        hand = Hand("birch", data=tmp_path, state=tmp_path, log=log, command=[sys.executable, "-c", "1 / 0", "x"])
        with pytest.raises(FealError, match="Site birch cannot start its own process: .*log says why"):
            hand.ready()
        lost = hand.answer(RUN, b"ask", timeout=None)
    assert lost == Lost(reason="Site birch cannot start its own process: its own log says why.")
    assert b"ZeroDivisionError" in (tmp_path / "log").read_bytes()


@pytest.mark.parametrize("run", ["", "../../etc", "0" * 31, "G" * 32, f"{RUN}/x"])
def test_a_run_is_a_number_and_no_path(run: str, tmp_path: Path) -> None:
    assert run_folder(tmp_path, RUN) == tmp_path / "runs" / RUN
    with pytest.raises(FealError, match="names no run"):
        run_folder(tmp_path, run)
