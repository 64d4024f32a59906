import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from feal.analysis.report.server import MAX_LISTED, LiveReport, open_server, read_run_statuses
from feal.analysis.runs import RunCollection, read_runs
from feal.errors import FealError
from feal.experiment import start
from feal.rundir.journal import write_config
from feal.rundir.layout import RunDirectory
from tests.copies import copied, cut
from tests.runs import tiny


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, curves_only: None) -> None:
    monkeypatch.setattr("feal.analysis.report.server.POLL_INTERVAL", 0.02)
    monkeypatch.setattr("feal.analysis.report.server.RETRY_DELAY", 0.02)


@contextmanager
def _served(place: Path) -> Iterator[int]:
    with LiveReport(place) as live, open_server(live, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _get(port: int, path: str, host: str | None = None) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def _until(true: Callable[[], bool]) -> None:
    for _ in range(1500):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def _contents(port: int) -> dict[str, object]:
    return json.loads(_get(port, "/content.json")[1])


def test_a_foreign_name_for_this_machine_is_refused(tmp_path: Path) -> None:
    with _served(tmp_path) as port:
        assert _get(port, "/")[0] == 200
        assert _get(port, "/", f"localhost:{port}")[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
            assert _get(port, "/status.json", host)[0] == 403, host
        assert _get(port, "/../etc/passwd")[0] == 404
        headers = _get(port, "/status.json")[2]
        assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert headers["Access-Control-Allow-Origin"] is None


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with _served(tmp_path) as port, pytest.raises(FealError, match=f"Port {port} cannot be used"):
        open_server(LiveReport(tmp_path), port=port)


def test_an_empty_folder_fills_a_run_goes_on_and_the_folder_vanishes(finished: Path, tmp_path: Path) -> None:
    place = tmp_path / "runs"
    place.mkdir()
    with _served(place) as port:
        assert "There is no run" in json.loads(_get(port, "/status.json")[1])["summary"]
        assert "nothing to show yet" in str(_contents(port)["html"])
        cut(copied(finished, place / "run"), rounds=1)
        _until(lambda: "no run is finished" in str(_contents(port)["html"]))
        shutil.rmtree(place / "run")
        copied(finished, place / "run")
        _until(lambda: "no run is finished" not in str(_contents(port)["html"]))
        found = _contents(port)
        assert found["charts"]["curves"]["packed"]
        assert json.loads(_get(port, "/status.json")[1])["version"] == found["version"]
        shutil.rmtree(place)
        _until(lambda: "is gone" in json.loads(_get(port, "/status.json")[1])["summary"])
        assert _contents(port) == found


def test_what_changes_while_it_is_read_is_read_again(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "runs"
    run, aside = copied(finished, place / "run"), tmp_path / "aside"
    unfinished = cut(copied(finished, tmp_path / "unfinished"), rounds=1)

    def changed_before_it_is_read(places: Sequence[Path]) -> RunCollection:
        if not aside.exists():
            run.rename(aside)
            unfinished.rename(run)
        return read_runs(places)

    # Long enough for the change to be undone between two looks: only what was read tells that there was one.
    monkeypatch.setattr("feal.analysis.report.server.POLL_INTERVAL", 0.5)
    monkeypatch.setattr("feal.analysis.report.server.read_runs", changed_before_it_is_read)
    with _served(place) as port:
        _until(lambda: "no run is finished" in str(_contents(port)["html"]))
        run.rename(unfinished)
        shutil.copytree(aside, run)
        _until(
            lambda: bool(_contents(port)["charts"]) and "no run is finished" not in str(_contents(port)["html"])
        )


def test_runs_that_do_not_fit_are_told_and_what_was_there_stays(finished: Path, tmp_path: Path) -> None:
    copied(finished, tmp_path / "one")
    with _served(tmp_path) as port:
        _until(lambda: bool(_contents(port)["charts"]))
        synthetic = {**tiny().dataset.model_dump(), "train": 30}
        copied(finished, tmp_path / "two", dataset=synthetic)
        _until(lambda: "different experiments" in str(_contents(port)["html"]))
        assert _contents(port)["charts"]
        shutil.rmtree(tmp_path / "two")
        _until(lambda: "different experiments" not in str(_contents(port)["html"]))


def test_a_finished_run(finished: Path) -> None:
    found = read_run_statuses(finished)
    assert found.summary == "run (feal, seed 0): finished after 2 rounds"
    assert found.to_json()["done"] == 1.0


def test_a_run_at_work_says_where_it_is_and_whom_it_waits_for(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = read_run_statuses(tmp_path)
    assert before.runs[0].detail == f"stopped in round 2 of 2, communication round 1 of 1: feal resume {run}"
    assert before.to_json()["done"] == 0.5
    (run / ".lock").write_text(str(os.getpid()))
    assert read_run_statuses(tmp_path).runs[0].detail == "round 2 of 2, communication round 1 of 1"
    (run / "replies").mkdir()
    (run / "replies" / "birch").touch()
    after = read_run_statuses(tmp_path)
    assert after.summary.endswith("communication round 1 of 1, waiting for alder")
    assert after.version == before.version


def test_a_run_that_waits_for_people_says_for_how_many_labels(tmp_path: Path) -> None:
    run = start(tiny(annotator="folder", rounds=2), out=tmp_path / "run").folder
    assert read_run_statuses(run).summary == (
        "run (feal, seed 0): waiting for labels of round 1 of 2: 5 at alder, 5 at birch"
    )


def test_many_runs_are_counted_and_the_first_of_them_told(finished: Path, tmp_path: Path) -> None:
    for seed in range(MAX_LISTED + 2):
        cut(copied(finished, tmp_path / f"run-{seed:02}", seed=seed), rounds=1)
    copied(finished, tmp_path / "done", seed=99)
    (tmp_path / "new").mkdir()
    write_config(RunDirectory(tmp_path / "new"), tiny().dump())
    found = read_run_statuses(tmp_path)
    assert found.summary == f"1 of {MAX_LISTED + 4} runs finished, {MAX_LISTED + 2} stopped, 1 not started"
    content = json.loads(json.dumps(found.to_json()))
    assert (content["all"], content["done"]) == (MAX_LISTED + 4, 1 + (MAX_LISTED + 2) / 2)
    assert content["runs"][-1]["detail"] == "and 3 more"


def test_new_figures_change_the_version_and_steps_do_not(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = read_run_statuses(run).version
    state = json.loads((run / "state.json").read_text())
    (run / "state.json").write_text(json.dumps(state | {"step": 1}))
    assert read_run_statuses(run).version == before
    (run / "state.json").write_text(json.dumps(state | {"round_bytes": state["round_bytes"] + 9}))
    assert read_run_statuses(run).version != before


def test_a_folder_that_is_empty_gone_or_damaged_is_no_error(finished: Path, tmp_path: Path) -> None:
    assert "There is no run in" in read_run_statuses(tmp_path).summary
    assert read_run_statuses(tmp_path / "absent").summary.startswith(f"{tmp_path / 'absent'} is gone")
    run = copied(finished, tmp_path / "run")
    (run / "state.json").write_text("{")
    found = read_run_statuses(tmp_path)
    assert found.runs[0].stage == "unreadable"
    assert "is damaged" in found.summary
    shutil.rmtree(run)
    assert read_run_statuses(tmp_path).runs == ()
