"""The worker process of a site: its replies to the coordinator, and how it ends."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from feal import __version__
from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.site.site import handle_request
from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.deploy.worker import FAILURE, REPLY, WorkerProcess, answer_frame, find_run_directory
from feal.fileio import write_text
from feal.settings import Settings
from tests.federation.transport.consortium import until
from tests.prepared import write_prepared
from tests.runs import tiny

RUN = "0" * 32


def _join(**changes: Any) -> bytes:
    settings = Settings.model_validate({**tiny().dump(), **changes})
    request = messages.Join(run=settings.identity(), configuration=settings.dump(), version=__version__)
    return messages.encode(messages.seal(request))


def _frame(folder: Path, request: bytes, *, run: str = RUN, plugins: tuple[str, ...] = ()) -> bytes:
    places = {"data": folder / "patients", "state": folder / "state"}
    return answer_frame(handle_request, "alder", request, run=run, plugins=plugins, **places)


def _told(folder: Path, request: bytes, **more: Any) -> str:
    frame = _frame(folder, request, **more)
    assert frame[:1] == FAILURE
    return frame[1:].decode()


def test_no_path_crosses_the_border(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(tmp_path, _join()) == "Site alder could not start to answer: see logs/site.log there."
    assert str(tmp_path / "patients") in capsys.readouterr().err
    data = write_prepared(tmp_path / "patients")
    for broken in ("alder/images.npy", "alder/samples/id.npy", "manifest.json"):
        (data / broken).write_bytes(b"")
        frame = _frame(tmp_path, _join())
        assert b"problem.txt" in frame or b"logs/site.log" in frame
        assert str(tmp_path).encode() not in frame
        assert b".npy" not in frame
        assert b"manifest" not in frame


def test_invalid_messages_are_reported(tmp_path: Path) -> None:
    assert "names no run: install the same version" in _told(tmp_path, _join(), run="../elsewhere")
    strange = messages.encode(messages.seal(messages.Labels(run="x"))).replace(b"kind", b"kinn")
    write_prepared(tmp_path / "patients")
    assert "could not be read" in _told(tmp_path, strange)
    assert "failed with" in _told(tmp_path, b"\0" * 100)


def test_the_coordinator_cannot_choose_code(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    write_text(own, f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    strategy = f"{own}:Mine"
    write_prepared(tmp_path / "patients")
    assert "Site alder runs only code that it allows" in _told(tmp_path, _join(strategy=strategy))
    assert "runs only code" in _told(tmp_path, _join(strategy="antigravity:x"), plugins=(strategy,))
    assert not (tmp_path / "ran").exists()
    _frame(tmp_path, _join(strategy=strategy), plugins=(strategy,))
    assert (tmp_path / "ran").exists()


def test_a_joined_run_has_a_configuration_at_the_site(tmp_path: Path) -> None:
    write_prepared(tmp_path / "patients")
    frame = _frame(tmp_path, _join())
    assert frame[:1] == REPLY
    reply = messages.decode_reply(frame[1:])
    assert reply.status == "ok", reply.reason
    noted = yaml.safe_load((tmp_path / "state" / "runs" / RUN / "config.yaml").read_text())
    assert noted == {**tiny().dump(), "dataset": str(tmp_path / "patients")}


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
