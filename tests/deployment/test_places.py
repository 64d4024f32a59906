"""What coordinator and sites are told, and what is wrong with it."""

import socket
import stat
from pathlib import Path

import pytest

from feal.deployment.addresses import check_plain, host_and_port
from feal.deployment.places import coordinator_place, site_place
from feal.errors import FealError
from feal.files import locked, write_json

SITE = "name: alder\ncoordinator: hub.example.org:9092\n"


def _coordinator(folder: Path, text: str = "port: 9000\nsites: {alder: keys/alder.pub}\n") -> Path:
    (folder / "coordinator.yaml").write_text(text)
    return folder


def test_settings_of_the_command_line_come_before_the_files(tmp_path: Path) -> None:
    place = coordinator_place(_coordinator(tmp_path), {"port": 9001, "host": None})
    assert place.settings.port == 9001
    assert place.settings.host == "127.0.0.1"
    assert place.settings.sites == {"alder": "keys/alder.pub"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: many\n", "'port' is not valid"),
        ("ports: 1\n", "'ports' is not valid"),
        ("- 1\n", "holds no settings"),
        ("{\n", "is no YAML file"),
        ("state: 2024-13-45\n", "is no YAML file"),
        ("[" * 5000, "is no YAML file"),
        ("host: ''\n", "is no address"),
        ("host: .hub\n", "is no address"),
        ("sites: {../alder: x.pub}\n", "'../alder' is no name of a site"),
    ],
)
def test_a_bad_file_is_told_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(FealError, match=said):
        coordinator_place(_coordinator(tmp_path, text))


def test_a_folder_without_settings_is_told(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="coordinator.yaml is missing: write it with `feal deploy init`"):
        coordinator_place(tmp_path)
    with pytest.raises(FealError, match="site.yaml is missing"):
        site_place(tmp_path)


def test_a_site_needs_data_and_an_address(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    with pytest.raises(FealError, match="names no data: give the prepared folder with --data"):
        _ = site_place(tmp_path).data
    assert site_place(tmp_path, {"data": "prepared"}).data == tmp_path / "prepared"
    with pytest.raises(FealError, match="'hub' is no address: write HOST:PORT"):
        site_place(tmp_path, {"coordinator": "hub"})


NO_HOSTS = ("a b", "x$(id)", "x'y", 'x"y', "x\ny", "-x", "[hub]x", "fe80::1%eth0", "x,DNS:y")


@pytest.mark.parametrize(
    "address",
    ["hub", ":9092", "hub:", "hub:0", "hub:99999", "hub:x", "hub:²", *(f"{host}:9092" for host in NO_HOSTS)],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(FealError, match="is no address"):
        host_and_port(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "hub.example.org", "::"])
def test_plain_text_is_for_this_machine_only(host: str) -> None:
    with pytest.raises(FealError, match="--insecure is for trials on one machine"):
        check_plain(host)
    check_plain("127.0.0.1")


def test_a_name_is_believed_to_be_this_machine_only_where_it_leads_there(monkeypatch: pytest.MonkeyPatch) -> None:
    check_plain("localhost")
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    with pytest.raises(FealError, match="localhost is not its loopback address"):
        check_plain("localhost")


def test_the_run_key_stays_the_same(tmp_path: Path) -> None:
    place = coordinator_place(_coordinator(tmp_path))
    with pytest.raises(FealError, match="No coordinator is at work in"):
        place.secret()
    secret = place.secret(make=True)
    assert place.secret() == place.secret(make=True) == secret
    assert stat.S_IMODE(place.state.stat().st_mode) == 0o700


def test_whereabouts_are_those_of_a_coordinator_at_work(tmp_path: Path) -> None:
    place = coordinator_place(_coordinator(tmp_path))
    with pytest.raises(FealError, match="No coordinator is at work in .* start it with `feal deploy coordinator"):
        place.whereabouts()
    write_json(place.running, {"address": "127.0.0.1:9000", "insecure": False})
    with pytest.raises(FealError, match="No coordinator is at work"):  # it was killed
        place.whereabouts()
    with locked(place.state):
        assert place.whereabouts().address == "127.0.0.1:9000"
        write_json(place.running, [])
        with pytest.raises(FealError, match="No coordinator is at work"):
            place.whereabouts()
