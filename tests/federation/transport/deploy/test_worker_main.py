"""Replies of a site's worker process to the coordinator."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from feal import __version__
from feal.federation import protocol as messages
from feal.federation.site.site import handle_request
from feal.federation.transport.deploy.worker_main import FAILURE, REPLY, answer_frame
from feal.fileio import write_text
from feal.settings import Settings
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
