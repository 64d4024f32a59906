"""Failures in a deployment: sites that fail or disconnect, a killed coordinator, unknown callers."""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import yaml
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from feal.errors import FealError
from feal.experiment import Result, resume, start
from feal.federation.transport import FlowerDeployment
from tests.federation.transport import faults, saboteur
from tests.federation.transport.conftest import assert_no_data_passed, settings_for
from tests.federation.transport.consortium import FEAL, Consortium, Process, supernode, until
from tests.runs import Listener, differences, events, fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
LONG = {"transport.patience": 300.0}


@pytest.fixture(autouse=True)
def _all_there(consortium: Consortium) -> None:
    """Start every test with correct sites that are all connected."""
    be_whole(consortium)


def be_whole(consortium: Consortium) -> None:
    """Start what is not running, and remove all faults."""
    (consortium.root / "sabotage.json").unlink(missing_ok=True)
    if not consortium.running["coordinator"].alive():
        consortium.start_coordinator()
    for name in consortium.sites:
        if not consortium.running[name].alive():
            consortium.start_site(name, sabotaged=name == "birch")
    consortium.await_connected(*consortium.sites)


class Absence(Listener):
    """Stop birch after the last step of a round and start it again in the next."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__()
        self._consortium = consortium

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        if (round, step) == (1, 2):
            self._consortium.running["birch"].stop()
        if (round, step) == (2, 0):
            self._consortium.start_site("birch", sabotaged=True)
            self._consortium.await_connected("birch")


def test_a_site_that_fails_is_left_out_and_catches_up(consortium: Consortium, tmp_path: Path) -> None:
    saboteur.order(
        consortium.root / "sabotage.json",
        ("NaN weights", "train", 1, 0),
        ("wrong shapes", "train", 1, 1),
        ("hanging", "train", 1, 2),
    )
    settings = settings_for(
        consortium, quorum=2, communication_rounds=3, round_timeout=40, **{"transport.patience": 5.0}
    )
    callback = Absence(consortium)
    result = start(settings, out=tmp_path / "run", callback=callback)
    left_out = [(event["message"], event["round"], event["step"]) for event in events(result.folder, "left_out")]
    assert {event["site"] for event in events(result.folder, "left_out")} == {"birch"}
    assert left_out[:3] == [("train", 1, 0), ("train", 1, 1), ("train", 1, 2)]
    reasons = [event["reason"] for event in events(result.folder, "left_out")]
    assert "not finite" in reasons[0]
    assert "another shape" in reasons[1]
    assert reasons[2] == "Site birch did not answer within 40 s (round_timeout)."
    assert reasons[3] == "Site birch is not connected to the coordinator: start `feal deploy site` there."
    assert left_out[3] == ("close_round", 1, 0)
    assert any("Left out: Site birch sent weights that are not finite" in note for note in callback.notes)
    assert result.rounds[1].labels == {"alder": 10, "birch": 10, "cedar": 10}
    steps = [set(event["loss"]) for event in events(result.folder, "step")]
    assert steps[:4] == [{"alder", "cedar"}] * 4
    assert steps[4:] == [{"alder", "birch", "cedar"}] * 2


class Battery(Listener):
    """Disturb the messages of birch in one way after the other."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__()
        self._consortium = consortium
        self.members: list[int] = []
        self.happened: list[str] = []

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        birch = self._consortium.running["birch"]
        if (round, step, site, doing) == (1, 0, "alder", "training"):
            os.kill(supernode(birch), signal.SIGKILL)
            self.happened.append("the SuperNode is killed while its site trains")
        if (round, step, site, doing) == (1, 1, "alder", "training"):
            self.members = sorted(birch.members())
            birch.kill()
            self._consortium.start_site("birch", sabotaged=True)
            self.happened.append("the site is killed while it trains")

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        if (round, step) == (1, 1):
            self._consortium.recorder.interfere = self._while_it_sends
        if (round, step) == (2, 0):
            self._consortium.recorder.interfere = self._as_it_is_given

    def _while_it_sends(self, way: str, data: bytes, port: int) -> bool:
        """Kill the SuperNode while it sends a reply."""
        if way == "down" or b"POST /v1/fleet/push-object" not in data or self._is_not_birch(port):
            return False
        self._consortium.recorder.interfere = lambda way, data, port: False
        os.kill(supernode(self._consortium.running["birch"]), signal.SIGKILL)
        self.happened.append("the SuperNode is killed while it sends")
        return True

    def _as_it_is_given(self, way: str, data: bytes, port: int) -> bool:
        """Drop the response that delivers a message to the SuperNode."""
        if way == "up" or b"query" not in data or self._is_not_birch(port):
            return False
        self._consortium.recorder.interfere = lambda way, data, port: False
        self.happened.append("the message is lost on its way")
        return True

    def _is_not_birch(self, port: int) -> bool:
        return not faults.owners(port) & self._consortium.running["birch"].members()


@pytest.fixture(scope="module")
def battery(consortium: Consortium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Battery, Result]]:
    """Run with messages to birch lost in every way; return the run and the disturbances."""
    be_whole(consortium)
    saboteur.order(consortium.root / "sabotage.json", ("slow", "train", 1, 0), ("slow", "train", 1, 1))
    callback = Battery(consortium)
    out = tmp_path_factory.mktemp("battery") / "run"
    try:
        yield callback, start(settings_for(consortium, **LONG), out=out, callback=callback)
    finally:
        consortium.recorder.interfere = lambda way, data, port: False


def test_lost_messages_are_sent_again_and_give_the_same_bits(
    consortium: Consortium, battery: tuple[Battery, Result], reference: Result
) -> None:
    callback, result = battery
    assert callback.happened == [
        "the SuperNode is killed while its site trains",
        "the site is killed while it trains",
        "the SuperNode is killed while it sends",
        "the message is lost on its way",
    ]
    assert len(callback.members) == 3  # the site's process, its SuperNode and its hand
    assert events(result.folder, "left_out") == []
    run = consortium.gathered(result.folder)
    assert differences(fingerprint(reference.folder), fingerprint(run)) == ["config.yaml"]


def test_no_data_leaves_a_site_when_messages_are_lost(
    consortium: Consortium, battery: tuple[Battery, Result]
) -> None:
    assert_no_data_passed(consortium, model=battery[1].folder / "weights" / "round-002.safetensors")


def test_a_killed_run_leaves_no_process_and_is_resumed_to_the_same_bits(
    consortium: Consortium, reference: Result, tmp_path: Path
) -> None:
    run, out = _begun(consortium, tmp_path)
    run.kill(all_of_it=False)
    assert until(lambda: not run.members(), "the end of all that the run had started")
    result = resume(out)
    gathered = consortium.gathered(result.folder)
    assert differences(fingerprint(reference.folder), fingerprint(gathered)) == ["config.yaml"]


def _begun(consortium: Consortium, folder: Path, **changes: object) -> tuple[Process, Path]:
    """Start `feal run` in a child process; return it and its directory after the first step."""
    config, out = folder / "mine.yaml", folder / "run"
    config.write_text(yaml.safe_dump(settings_for(consortium, **changes).dump()))
    run = Process([*FEAL, "run", str(config), "--out", str(out)], folder / "run.log")
    consortium.past.append(run)
    log = out / "metrics.jsonl"
    until(lambda: not run.alive() or (log.exists() and b'"step"' in log.read_bytes()), "the first step")
    assert run.alive(), run.said()
    return run, out


def test_a_run_is_resumed_to_the_same_bits_after_the_coordinator_was_killed(
    consortium: Consortium, reference: Result, tmp_path: Path
) -> None:
    run, out = _begun(consortium, tmp_path, **{"transport.patience": 3.0})
    consortium.running["coordinator"].kill()
    assert run.ended() == 2
    assert "does not answer: start it with `feal deploy coordinator" in run.said()
    assert run.members() == set()
    with pytest.raises(FealError, match="No coordinator is running in .*: start it with `feal deploy coordinator"):
        resume(out)
    consortium.start_coordinator()
    result = resume(out, settings=settings_for(consortium, **LONG))
    gathered = consortium.gathered(result.folder)
    assert differences(fingerprint(reference.folder), fingerprint(gathered)) == ["config.yaml"]


def test_another_version_or_configuration_is_refused_with_the_reason(
    consortium: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saboteur.order(consortium.root / "sabotage.json", ("another version", "join", 0, 0))
    with pytest.raises(
        FealError, match="Site birch runs version 0.0.1, the coordinator .*: install the same version"
    ):
        start(settings_for(consortium), out=tmp_path / "old")
    (consortium.root / "sabotage.json").unlink()
    begun = next((consortium.place("alder") / "state" / "runs").glob("*/sites/alder/site.sqlite")).parents[2].name
    monkeypatch.setattr(FlowerDeployment, "_read_run_id", lambda self: begun)
    with pytest.raises(FealError, match="belongs to another run with another configuration"):
        start(settings_for(consortium, seed=7), out=tmp_path / "other")


def _stranger(consortium: Consortium, name: str, **changes: str) -> Path:
    """Copy alder's folder with some settings changed."""
    folder = consortium.root / name
    folder.mkdir()
    own = yaml.safe_load((consortium.place("alder") / "site.yaml").read_text())
    for file in ("authority.crt", "node.key"):
        shutil.copy(consortium.place("alder") / file, folder)
    (folder / "site.yaml").write_text(yaml.safe_dump({**own, **changes}))
    return folder


def test_unknown_keys_and_callers_are_refused(consortium: Consortium) -> None:
    before = _held(consortium)
    unregistered = _stranger(consortium, "unregistered", key="own.key")
    _do(f"ssh-keygen -q -t ecdsa -b 384 -N '' -f {unregistered / 'own.key'}")
    elsewhere = _stranger(consortium, "elsewhere", authority="other.crt")
    _do(f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout {elsewhere}/x -out {elsewhere}/other.crt")
    plain = consortium.start_site("alder", folder=_stranger(consortium, "plain"), insecure=True)
    others = [consortium.start_site("alder", folder=folder) for folder in (unregistered, elsewhere)]
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://127.0.0.1:{consortium.port}/health", trust_env=False)
    authority = str(consortium.coordinator / "certificates" / "authority.crt")
    for call in ("control/register-node", "control/start-run", "control/list-nodes", "runtime/acquire-task"):
        headers = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE}
        address = f"https://127.0.0.1:{consortium.port}/v1/{call}"
        reply = httpx.post(address, headers=headers, verify=authority, trust_env=False)
        assert reply.status_code in (401, 403), (call, reply.status_code)
    assert [process.ended() for process in others] == [2, 2]
    assert "does not know this site's key" in others[0].said()
    assert "is not signed by other.crt" in others[1].said()
    until(lambda: "does not answer" in plain.said(), "the plain connection's failure")
    plain.stop()
    log = (consortium.coordinator / "state" / "logs" / "superlink.log").read_text()
    assert "No SuperNode found with the given public key" in log
    assert "A connection was refused: HTTP_REQUEST" in log
    assert _held(consortium) == before


def _do(command: str) -> None:
    subprocess.run(shlex.split(command), check=True, capture_output=True)


def _held(consortium: Consortium) -> dict[str, list[str]]:
    return {
        name: sorted(str(path) for path in (consortium.place(name) / "state" / "runs").rglob("*"))
        for name in consortium.sites
    }


def test_a_site_with_the_name_of_another_is_refused(consortium: Consortium, tmp_path: Path) -> None:
    consortium.running["cedar"].stop()
    folder = _stranger(consortium, "impostor")
    shutil.copy(consortium.place("cedar") / "node.key", folder)
    impostor = consortium.start_site("alder", folder=folder)
    try:
        consortium.await_connected("impostor")
        with pytest.raises(FealError, match="The key of site cedar is used by a site named alder"):
            start(settings_for(consortium), out=tmp_path / "run")
        assert "a site named alder" in impostor.said()
        assert not (folder / "state" / "runs").exists()
    finally:
        impostor.stop()


def test_no_process_is_left_however_it_ends(consortium: Consortium) -> None:
    alder, birch, cedar = (consortium.running[name] for name in consortium.sites)
    assert all(len(process.members()) == 3 for process in (alder, birch, cedar))
    alder.stop()
    os.kill(cedar.pid, signal.SIGINT)
    birch.kill(all_of_it=False)
    until(lambda: not (alder.members() | birch.members() | cedar.members()), "the end of all sites", seconds=60)
    coordinator = consortium.running["coordinator"]
    coordinator.stop()
    assert coordinator.ended() == 143
    assert coordinator.members() == set()
    assert not (consortium.coordinator / "state" / "running.json").exists()
