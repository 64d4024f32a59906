"""Settings of the coordinator and the sites, and the files that `feal deploy init` writes."""

import socket
import stat
import subprocess
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.deploy.config import (
    check_loopback,
    parse_address,
    read_coordinator_config,
    read_site_config,
    write_consortium_files,
)
from feal.federation.transport.deploy.credentials import find_server_files, read_public_key
from feal.fileio import lock_directory, write_json
from tests.command import Command

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


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(path)], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("address", "host", "names"),
    [
        ("hub.example.org:9092", "0.0.0.0", "DNS:hub.example.org, DNS:localhost, IP Address:127.0.0.1"),
        ("10.1.2.3:443", "0.0.0.0", "IP Address:10.1.2.3, DNS:localhost, IP Address:127.0.0.1"),
        ("127.0.0.1:9092", "127.0.0.1", "IP Address:127.0.0.1, DNS:localhost"),
        ("[::1]:9092", "::1", "IP Address:0:0:0:0:0:0:0:1, DNS:localhost, IP Address:127.0.0.1"),
        ("[2001:db8::7]:9092", "::", "IP Address:2001:DB8:0:0:0:0:0:7, DNS:localhost, IP Address:127.0.0.1"),
    ],
)
def test_certificates_keys_and_settings(address: str, host: str, names: str, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    write_consortium_files(kit, address=address, sites=["birch", "alder"])
    place = read_coordinator_config(kit / "coordinator")
    assert place.settings.host == host
    assert place.settings.sites == {"alder": "keys/alder.pub", "birch": "keys/birch.pub"}
    assert read_site_config(kit / "sites" / "alder").settings.coordinator == address
    assert _run(kit / "coordinator" / "make-certificates.sh").returncode == 0
    certificates = kit / "coordinator" / "certificates"
    shown = subprocess.run(
        ["openssl", "x509", "-in", certificates / "server.crt", "-noout", "-text"], capture_output=True, text=True
    ).stdout
    assert names in shown
    checked = ["openssl", "verify", "-CAfile", certificates / "authority.crt", certificates / "server.crt"]
    assert subprocess.run(checked, capture_output=True).returncode == 0
    again = _run(kit / "coordinator" / "make-certificates.sh")
    assert again.returncode == 2
    assert "A certificate exists already: remove server.crt and server.key" in again.stderr
    assert _run(kit / "sites" / "alder" / "make-key.sh").returncode == 0
    secret = kit / "sites" / "alder" / "node.key"
    assert secret.stat().st_mode & 0o077 == 0
    assert (certificates / "server.key").stat().st_mode & 0o077 == 0
    assert read_public_key(secret.with_suffix(".key.pub")).startswith(b"-----BEGIN PUBLIC KEY-----")
    assert "give the folder of prepared data" in _run(kit / "sites" / "alder" / "start.sh").stderr


def test_a_certificate_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    write_consortium_files(tmp_path / "a kit", address=f"{'long-' * 20}name.example.org:9092", sites=["alder"])
    script = tmp_path / "a kit" / "coordinator" / "make-certificates.sh"
    assert _run(script).returncode == 0
    folder = script.parent / "certificates"
    authority, before = (folder / "authority.crt").read_bytes(), (folder / "server.crt").read_bytes()
    (folder / "server.crt").unlink()
    secret = (folder / "authority.key").rename(tmp_path / "off-line")
    assert "authority.key is missing: restore it" in _run(script).stderr
    secret.rename(folder / "authority.key")
    assert _run(script).returncode == 0
    assert (folder / "authority.crt").read_bytes() == authority
    assert (folder / "server.crt").read_bytes() != before
    find_server_files(read_coordinator_config(script.parent))


def test_an_invalid_public_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.pub").write_text("hello")
    with pytest.raises(FealError, match="is not a public key of `ssh-keygen -t ecdsa`"):
        read_public_key(tmp_path / "a.pub")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "b"], check=True)
    with pytest.raises(FealError, match="is not a public key of `ssh-keygen -t ecdsa`"):
        read_public_key(tmp_path / "b.pub")
    with pytest.raises(FealError, match="is missing"):
        read_public_key(tmp_path / "c.pub")


def test_the_command_names_the_checklist_and_refuses_invalid_input(command: Command, tmp_path: Path) -> None:
    words = ("deploy", "init", tmp_path / "kit", "--address", "hub.example.org:9092", "--site", "alder")
    assert f"Next steps on each machine: {tmp_path / 'kit' / 'CHECKLIST.md'}" in command(*words).out
    checklist = (tmp_path / "kit" / "CHECKLIST.md").read_text()
    assert "hub.example.org:9092" in checklist
    assert "port 9092" in checklist
    taken = command(*words)
    assert (taken.code, taken.err) == (
        2,
        f"Error: {tmp_path / 'kit'} is not empty: name a new folder.\n",
    )
    assert "is given twice" in command(*words[:2], tmp_path / "new", *words[3:], "--site", "alder").err
    for address in ("hub", 'x"; touch bad; ":1', "$(touch bad):1", "x,DNS:evil.example.org:1"):
        assert (
            "is not an address" in command(*words[:2], tmp_path / "new", "--address", address, "--site", "a").err
        )
    for name in ("a b", "a\nb", "a'b", "$(id)", "../a", "-a", ""):
        told = command(*words[:2], tmp_path / "new", *words[3:5], f"--site={name}")
        assert told.code == 2
        assert "is not a valid site name" in told.err
        assert told.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_the_current_directory_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        ended = command("deploy", "init", folder, "--address", "hub.example.org:9092", "--site", "alder")
        assert ended.code == 2
        assert (
            ended.err.strip() == "Error: Cannot create the consortium in the current directory: name a new folder."
        )
    assert list(tmp_path.iterdir()) == []
