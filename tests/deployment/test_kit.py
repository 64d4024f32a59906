"""`feal deploy init`: what it writes can be used as it stands."""

import subprocess
from pathlib import Path

import pytest

from feal.deployment.credentials import public_key, server_files
from feal.deployment.kit import write_kit
from feal.deployment.places import coordinator_place, site_place
from feal.errors import FealError
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
    write_kit(kit, address=address, sites=["birch", "alder"])
    place = coordinator_place(kit / "coordinator")
    assert place.settings.host == host
    assert place.settings.sites == {"alder": "keys/alder.pub", "birch": "keys/birch.pub"}
    assert site_place(kit / "sites" / "alder").settings.coordinator == address
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
    assert "There is a certificate already: remove server.crt and server.key" in again.stderr
    assert _run(kit / "sites" / "alder" / "make-key.sh").returncode == 0
    secret = kit / "sites" / "alder" / "node.key"
    assert secret.stat().st_mode & 0o077 == 0
    assert (certificates / "server.key").stat().st_mode & 0o077 == 0
    assert public_key(secret.with_suffix(".key.pub")).startswith(b"-----BEGIN PUBLIC KEY-----")
    assert "give the folder of prepared data" in _run(kit / "sites" / "alder" / "start.sh").stderr


def test_a_certificate_is_renewed_by_the_authority_that_sites_know(tmp_path: Path) -> None:
    write_kit(tmp_path / "a kit", address=f"{'long-' * 20}name.example.org:9092", sites=["alder"])
    script = tmp_path / "a kit" / "coordinator" / "make-certificates.sh"
    assert _run(script).returncode == 0
    folder = script.parent / "certificates"
    authority, before = (folder / "authority.crt").read_bytes(), (folder / "server.crt").read_bytes()
    (folder / "server.crt").unlink()
    secret = (folder / "authority.key").rename(tmp_path / "off-line")
    assert "authority.key is not here: put it back" in _run(script).stderr
    secret.rename(folder / "authority.key")
    assert _run(script).returncode == 0
    assert (folder / "authority.crt").read_bytes() == authority
    assert (folder / "server.crt").read_bytes() != before
    server_files(coordinator_place(script.parent))


def test_what_is_no_public_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.pub").write_text("hello")
    with pytest.raises(FealError, match="is no public key of `ssh-keygen -t ecdsa`"):
        public_key(tmp_path / "a.pub")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "b"], check=True)
    with pytest.raises(FealError, match="is no public key of `ssh-keygen -t ecdsa`"):
        public_key(tmp_path / "b.pub")
    with pytest.raises(FealError, match="is missing"):
        public_key(tmp_path / "c.pub")


def test_the_command_says_what_is_next_and_refuses_what_cannot_be(command: Command, tmp_path: Path) -> None:
    words = ("deploy", "init", tmp_path / "kit", "--address", "hub.example.org:9092", "--site", "alder")
    assert f"{tmp_path / 'kit' / 'CHECKLIST.md'} says what to do next" in command(*words).out
    checklist = (tmp_path / "kit" / "CHECKLIST.md").read_text()
    assert "hub.example.org:9092" in checklist
    assert "port 9092" in checklist
    taken = command(*words)
    assert (taken.code, taken.err) == (
        2,
        f"Error: {tmp_path / 'kit'} holds something already: name a new folder.\n",
    )
    assert "is given twice" in command(*words[:2], tmp_path / "new", *words[3:], "--site", "alder").err
    for address in ("hub", 'x"; touch bad; ":1', "$(touch bad):1", "x,DNS:evil.example.org:1"):
        assert "is no address" in command(*words[:2], tmp_path / "new", "--address", address, "--site", "a").err
    for name in ("a b", "a\nb", "a'b", "$(id)", "../a", "-a", ""):
        told = command(*words[:2], tmp_path / "new", *words[3:5], f"--site={name}")
        assert told.code == 2
        assert "is no name of a site" in told.err
        assert told.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_the_folder_one_is_in_is_left_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".", str(tmp_path)):
        ended = command("deploy", "init", folder, "--address", "hub.example.org:9092", "--site", "alder")
        assert ended.code == 2
        assert ended.err.strip() == "Error: The folder that you are in cannot be it: name a new folder."
    assert list(tmp_path.iterdir()) == []
