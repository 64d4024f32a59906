"""What a site's process says to the coordinator, and what it does not do for it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from feal.federation import messages
from feal.federation.deployed.handwork import LOST, REPLY, framed
from feal.federation.engines.same_disk import answer
from feal.files import write_text
from feal.settings import Settings
from feal.version import VERSION
from tests.prepared import write_prepared
from tests.runs import tiny

RUN = "0" * 32


def _join(**changes: Any) -> bytes:
    settings = Settings.model_validate({**tiny().dump(), **changes})
    request = messages.Join(run=settings.identity(), configuration=settings.dump(), version=VERSION)
    return messages.encode(messages.seal(request))


def _frame(folder: Path, request: bytes, *, run: str = RUN, strategies: tuple[str, ...] = ()) -> bytes:
    places = {"data": folder / "patients", "state": folder / "state"}
    return framed(answer, "alder", request, run=run, strategies=strategies, **places)


def _told(folder: Path, request: bytes, **more: Any) -> str:
    frame = _frame(folder, request, **more)
    assert frame[:1] == LOST
    return frame[1:].decode()


def test_no_path_crosses_the_border(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _told(tmp_path, _join()) == "Site alder could not begin to answer: logs/site.log there says why."
    assert str(tmp_path / "patients") in capsys.readouterr().err
    data = write_prepared(tmp_path / "patients")
    for broken in ("alder/images.npy", "alder/samples/id.npy", "manifest.json"):
        (data / broken).write_bytes(b"")
        frame = _frame(tmp_path, _join())
        assert b" says why." in frame
        assert str(tmp_path).encode() not in frame
        assert b".npy" not in frame
        assert b"manifest" not in frame


def test_messages_that_are_none_are_told(tmp_path: Path) -> None:
    assert "names no run: are all versions the same?" in _told(tmp_path, _join(), run="../elsewhere")
    strange = messages.encode(messages.seal(messages.Labels(run="x"))).replace(b"kind", b"kinn")
    write_prepared(tmp_path / "patients")
    assert "could not be read" in _told(tmp_path, strange)
    assert "failed with" in _told(tmp_path, b"\0" * 100)


def test_the_coordinator_does_not_choose_what_code_is_run(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    write_text(own, f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    strategy = f"{own}:Mine"
    write_prepared(tmp_path / "patients")
    assert "Site alder runs no code that is not its own choice" in _told(tmp_path, _join(strategy=strategy))
    assert "runs no code" in _told(tmp_path, _join(strategy="antigravity:x"), strategies=(strategy,))
    assert not (tmp_path / "ran").exists()
    _frame(tmp_path, _join(strategy=strategy), strategies=(strategy,))
    assert (tmp_path / "ran").exists()


def test_a_run_that_was_joined_is_noted_for_people(tmp_path: Path) -> None:
    write_prepared(tmp_path / "patients")
    frame = _frame(tmp_path, _join())
    assert frame[:1] == REPLY
    reply = messages.decode_reply(frame[1:])
    assert reply.status == "ok", reply.reason
    noted = yaml.safe_load((tmp_path / "state" / "runs" / RUN / "config.yaml").read_text())
    assert noted == {**tiny().dump(), "dataset": str(tmp_path / "patients")}
