"""Settings of the coordinator and the sites, valid and invalid."""

import socket
import stat
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.deploy.addresses import check_loopback, parse_address
from feal.federation.transport.deploy.config import read_coordinator_config, read_site_config
from feal.fileio import lock_directory, write_json

SITE = "name: alder\ncoordinator: hub.example.org:9092\n"


def _coordinator(folder: Path, text: str = "port: 9000\nsites: {alder: keys/alder.pub}\n") -> Path:
    (folder / "coordinator.yaml").write_text(text)
    return folder


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    place = read_coordinator_config(_coordinator(tmp_path), {"port": 9001, "host": None})
    assert place.settings.port == 9001
    assert place.settings.host == "127.0.0.1"
    assert place.settings.sites == {"alder": "keys/alder.pub"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: many\n", "'port' is invalid"),
        ("ports: 1\n", "'ports' is invalid"),
        ("- 1\n", "contains no settings"),
        ("{\n", "is not a YAML file"),
        ("state: 2024-13-45\n", "is not a YAML file"),
        ("[" * 5000, "is not a YAML file"),
        ("host: ''\n", "is not an address"),
        ("host: .hub\n", "is not an address"),
        ("sites: {../alder: x.pub}\n", "'../alder' is not a valid site name"),
    ],
)
def test_an_invalid_file_is_reported_in_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(FealError, match=said):
        read_coordinator_config(_coordinator(tmp_path, text))


def test_a_folder_without_settings_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="coordinator.yaml is missing: write it with `feal deploy init`"):
        read_coordinator_config(tmp_path)
    with pytest.raises(FealError, match="site.yaml is missing"):
        read_site_config(tmp_path)


def test_a_site_needs_data_and_an_address(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    with pytest.raises(FealError, match="names no data: give the prepared folder with --data"):
        _ = read_site_config(tmp_path).data
    assert read_site_config(tmp_path, {"data": "prepared"}).data == tmp_path / "prepared"
    with pytest.raises(FealError, match="'hub' is not an address: write HOST:PORT"):
        read_site_config(tmp_path, {"coordinator": "hub"})


NO_HOSTS = ("a b", "x$(id)", "x'y", 'x"y', "x\ny", "-x", "[hub]x", "fe80::1%eth0", "x,DNS:y")


@pytest.mark.parametrize(
    "address",
    ["hub", ":9092", "hub:", "hub:0", "hub:99999", "hub:x", "hub:²", *(f"{host}:9092" for host in NO_HOSTS)],
)
def test_an_invalid_address_is_reported(address: str) -> None:
    with pytest.raises(FealError, match="is not an address"):
        parse_address(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "hub.example.org", "::"])
def test_plain_text_is_refused_beyond_this_machine(host: str) -> None:
    with pytest.raises(FealError, match="--insecure is for trials on one machine"):
        check_loopback(host)
    check_loopback("127.0.0.1")


def test_localhost_is_loopback_only_if_it_resolves_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loopback("localhost")
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    with pytest.raises(FealError, match="localhost is not its loopback address"):
        check_loopback("localhost")


def test_the_run_key_stays_the_same(tmp_path: Path) -> None:
    place = read_coordinator_config(_coordinator(tmp_path))
    with pytest.raises(FealError, match="No coordinator is running in"):
        place.read_run_key()
    secret = place.read_run_key(create=True)
    assert place.read_run_key() == place.read_run_key(create=True) == secret
    assert stat.S_IMODE(place.state.stat().st_mode) == 0o700


def test_the_endpoint_is_that_of_a_running_coordinator(tmp_path: Path) -> None:
    place = read_coordinator_config(_coordinator(tmp_path))
    with pytest.raises(FealError, match="No coordinator is running in .* start it with `feal deploy coordinator"):
        place.read_endpoint()
    write_json(place.endpoint_file, {"address": "127.0.0.1:9000", "insecure": False})
    with pytest.raises(FealError, match="No coordinator is running"):  # it was killed
        place.read_endpoint()
    with lock_directory(place.state):
        assert place.read_endpoint().address == "127.0.0.1:9000"
        write_json(place.endpoint_file, [])
        with pytest.raises(FealError, match="No coordinator is running"):
            place.read_endpoint()
