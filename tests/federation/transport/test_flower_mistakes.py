"""Mistakes in a deployment that are found before anything is started."""

import os
import socket
import sys
from pathlib import Path

import pytest

from feal.config import load
from feal.errors import FealError
from feal.experiment import start
from feal.federation.transport.deploy.credentials import write_secret
from feal.fileio import write_json
from tests.command import Command
from tests.federation.transport.consortium import free_port
from tests.prepared import write_prepared
from tests.runs import tiny


def _coordinator(folder: Path, **running: object) -> Path:
    folder.mkdir()
    (folder / "coordinator.yaml").write_text("sites: {alder: keys/alder.pub}\n")
    if running:
        (folder / "state").mkdir()
        write_secret(folder / "state" / "run.key")
        (folder / "state" / ".lock").write_text(str(os.getpid()))
        write_json(folder / "state" / "running.json", running)
    return folder


def _refused(out: Path, **changes: object) -> str:
    with pytest.raises(FealError) as error:
        start(tiny(transport={"name": "flower", **changes}), out=out)
    assert not out.exists()
    return str(error.value)


def test_a_run_needs_a_running_coordinator(tmp_path: Path) -> None:
    assert "transport=flower needs the coordinator's folder" in _refused(tmp_path / "run")
    idle = _coordinator(tmp_path / "idle")
    said = _refused(tmp_path / "run", coordinator=str(idle))
    assert said == f"No coordinator is running in {idle}: start it with `feal deploy coordinator {idle}`."
    gone = _coordinator(tmp_path / "gone", address=f"127.0.0.1:{free_port()}", insecure=True)
    said = _refused(tmp_path / "run", coordinator=str(gone))
    assert "does not answer: start it with `feal deploy coordinator" in said


def test_the_data_set_is_only_a_name_in_a_deployment() -> None:
    flower = {"name": "flower", "coordinator": "here"}
    deployed = load("demo", {"dataset": "lesions-of-three", "transport": flower})
    assert deployed.dataset.name == "lesions-of-three"
    assert deployed.transport.params["coordinator"] == str(Path.cwd() / "here")
    with pytest.raises(FealError, match="There is no data set 'lesions-of-three'"):
        load("demo", {"dataset": "lesions-of-three"})


def test_the_transport_does_not_change_the_identity_of_a_run() -> None:
    deployed = tiny(transport={"name": "flower", "coordinator": "here", "patience": 5.0})
    assert deployed.identity() == tiny().identity()


def test_without_flower_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert "install it with `pip install 'feal[flower]'`" in _refused(tmp_path / "run")
    for words in (("coordinator",), ("site",), ("status",)):
        ended = command("deploy", *words, tmp_path)
        assert ended.code == 2
        assert "install it with `pip install 'feal[flower]'`" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0", "--insecure"], "--insecure is for trials on one machine"),
        (["--host", "192.0.2.1"], "authority.crt is missing (the certificate authority)"),
        (["--port", "0"], "'port' is invalid"),
    ],
)
def test_a_coordinator_that_cannot_start(words: list[str], said: str, command: Command, tmp_path: Path) -> None:
    folder = _coordinator(tmp_path / "hub")
    (folder / "coordinator.yaml").write_text("{}")
    ended = command("deploy", "coordinator", folder, *words)
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_a_port_in_use_is_reported(command: Command, tmp_path: Path) -> None:
    folder = _coordinator(tmp_path / "hub")
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = command("deploy", "coordinator", folder, "--insecure", "--port", other.getsockname()[1])
    assert ended.code == 2
    assert "Cannot listen at 127.0.0.1" in ended.err


@pytest.mark.parametrize(
    ("address", "words", "said"),
    [
        ("hub.example.org:9092", ["--insecure"], "--insecure is for trials on one machine"),
        ("127.0.0.1:9092", [], "is missing (the certificate authority)"),
    ],
)
def test_a_site_that_cannot_start(
    address: str, words: list[str], said: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(f"name: alder\ncoordinator: {address}\n")
    write_prepared(tmp_path / "prepared")
    ended = command("deploy", "site", tmp_path, "--data", tmp_path / "prepared", *words)
    assert ended.code == 2
    assert said in ended.err


def test_a_site_without_its_data_is_reported(command: Command, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("name: willow\ncoordinator: 127.0.0.1:9092\n")
    write_prepared(tmp_path / "prepared")
    ended = command("deploy", "site", tmp_path, "--data", tmp_path / "prepared", "--insecure")
    assert ended.code == 2
    assert "'willow'" in ended.err
