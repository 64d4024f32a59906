"""The worker process of a site, and how it ends."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.deploy.worker_main import find_run_directory
from feal.federation.transport.deploy.worker_process import WorkerProcess
from tests.federation.transport.consortium import until

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
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with (tmp_path / "log").open("wb") as log:
        made = WorkerProcess("birch", data=tmp_path, state=tmp_path, log=log, command=[sys.executable, "-c", WORK])
        yield made
        made.close()


def test_it_answers_and_is_restarted_after_it_hung_or_died(worker: WorkerProcess) -> None:
    well = RUN.encode() + b"ask" + b"birch"
    assert worker.handle(RUN, b"ask", timeout=None) == well
    assert worker.handle(RUN, b"fail", timeout=10) == DeliveryFailure(reason="no")
    assert worker.handle(RUN, b"hang", timeout=0.2) == DeliveryFailure.from_timeout("birch", 0.2)
    assert worker.handle(RUN, b"ask", timeout=10) == well
    gone = DeliveryFailure(reason="Site birch's process ended before it answered: killed, or out of memory.")
    assert worker.handle(RUN, b"die", timeout=None) == gone
    assert worker.handle(RUN, b"ask", timeout=None) == well


def test_requests_are_queued_and_cancelled_on_close(worker: WorkerProcess) -> None:
    first, second = (worker.submit(RUN, request, timeout=None) for request in (b"one", b"two"))
    assert (first.result(), second.result()) == (RUN.encode() + b"onebirch", RUN.encode() + b"twobirch")
    hanging, waiting = worker.submit(RUN, b"hang", timeout=None), worker.submit(RUN, b"ask", timeout=None)
    until(hanging.running, "its turn")
    worker.close()
    assert isinstance(hanging.result(timeout=0), DeliveryFailure)
    assert waiting.cancelled()


def test_a_process_that_cannot_start_is_reported(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        worker = WorkerProcess(
            "birch", data=tmp_path, state=tmp_path, log=log, command=[sys.executable, "-c", "1 / 0", "x"]
        )
        with pytest.raises(FealError, match="Site birch cannot start its worker process: see .*log"):
            worker.start()
        lost = worker.handle(RUN, b"ask", timeout=None)
    assert lost == DeliveryFailure(reason="Site birch cannot start its worker process: see the log at the site.")
    assert b"ZeroDivisionError" in (tmp_path / "log").read_bytes()


@pytest.mark.parametrize("run", ["", "../../etc", "0" * 31, "G" * 32, f"{RUN}/x"])
def test_a_run_is_an_id_not_a_path(run: str, tmp_path: Path) -> None:
    assert find_run_directory(tmp_path, RUN) == tmp_path / "runs" / RUN
    with pytest.raises(FealError, match="names no run"):
        find_run_directory(tmp_path, run)
