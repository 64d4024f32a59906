"""The files that `feal deploy init` writes work unchanged."""

import subprocess
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.deploy.config import read_coordinator_config, read_site_config
from feal.federation.transport.deploy.credentials import find_server_files, read_public_key
from feal.federation.transport.deploy.scaffold import write_consortium_files
from tests.command import Command


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
