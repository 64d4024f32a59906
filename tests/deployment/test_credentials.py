"""Keys and certificates that cannot be used are told before anybody is kept waiting."""

import subprocess
from pathlib import Path

import pytest

from feal.deployment.credentials import server_files, site_authority, site_key
from feal.deployment.kit import write_kit
from feal.deployment.places import CoordinatorPlace, SitePlace, coordinator_place, site_place
from feal.errors import FealError


def _do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A consortium with its certificates and keys."""
    folder = tmp_path / "kit"
    write_kit(folder, address="hub.example.org:9092", sites=["alder"])
    _do("sh", folder / "coordinator" / "make-certificates.sh")
    _do("sh", folder / "sites" / "alder" / "make-key.sh")
    return folder


@pytest.fixture
def hub(kit: Path) -> CoordinatorPlace:
    return coordinator_place(kit / "coordinator")


@pytest.fixture
def alder(kit: Path) -> SitePlace:
    return site_place(kit / "sites" / "alder")


def _signed(hub: CoordinatorPlace, names: str, *dates: str) -> None:
    """Give the coordinator another certificate of the same authority for the same key."""
    folder = hub.authority.parent
    (folder / "names").write_text(f"subjectAltName={names}\n")
    request = ["req", "-new", "-key", folder / "server.key", "-subj", "/CN=x", "-out", folder / "csr"]
    _do("openssl", *request)
    signing = ["-CA", hub.authority, "-CAkey", folder / "authority.key", "-CAcreateserial"]
    signing += ["-extfile", folder / "names", *dates]
    _do("openssl", "x509", "-req", "-in", folder / "csr", *signing, "-out", folder / "server.crt")


def test_what_the_scripts_make_can_be_used(hub: CoordinatorPlace, alder: SitePlace) -> None:
    assert [Path(path).name for path in server_files(hub)] == ["authority.crt", "server.crt", "server.key"]
    assert site_key(alder) == alder.folder / "node.key"
    (alder.folder / "authority.crt").write_bytes(hub.authority.read_bytes())
    assert site_authority(alder) == alder.folder / "authority.crt"


def test_certificates_that_no_site_could_believe(hub: CoordinatorPlace) -> None:
    _signed(hub, "DNS:hub.example.org")
    with pytest.raises(FealError, match=r"server.crt \(IP address mismatch.*have 127.0.0.1 among its names"):
        server_files(hub)
    _signed(hub, "IP:127.0.0.1", "-days", "-1")
    with pytest.raises(FealError, match=r"server.crt \(certificate has expired\): make another"):
        server_files(hub)
    _signed(hub, "IP:127.0.0.1", "-days", "2")
    server_files(hub)
    other = ["-keyout", hub.folder / "other", "-out", hub.authority, "-subj", "/CN=consortium"]
    _do("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *other)
    with pytest.raises(FealError, match="No site could believe .*server.crt"):
        server_files(hub)


def test_a_key_of_another_certificate_or_open_to_others(hub: CoordinatorPlace) -> None:
    key = hub.folder / hub.settings.key
    key.chmod(0o644)
    with pytest.raises(FealError, match=r"server.key \(the server's private key\) is open to others"):
        server_files(hub)
    key.write_bytes((hub.authority.parent / "authority.key").read_bytes())
    key.chmod(0o600)
    with pytest.raises(FealError, match="server.crt and server.key cannot be used together .*mismatch"):
        server_files(hub)
    key.write_text("")
    with pytest.raises(FealError, match="cannot be used together"):
        server_files(hub)
    key.unlink()
    with pytest.raises(FealError, match=r"server.key is missing"):
        server_files(hub)


def test_a_key_with_a_passphrase_is_told_without_asking_for_it(hub: CoordinatorPlace) -> None:
    key = hub.folder / hub.settings.key
    _do("openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key.with_name("locked"))
    key.with_name("locked").replace(key)
    key.chmod(0o600)
    with pytest.raises(FealError, match="cannot be used together .* the key without passphrase"):
        server_files(hub)


def test_a_host_that_no_certificate_can_name(kit: Path) -> None:
    with pytest.raises(FealError, match="'x{70}' is no name of a machine"):
        server_files(coordinator_place(kit / "coordinator", {"host": "x" * 70}))


def test_a_sites_key_must_be_one_and_its_own(alder: SitePlace) -> None:
    key = alder.folder / "node.key"
    key.chmod(0o644)
    with pytest.raises(FealError, match="node.key .* is open to others"):
        site_key(alder)
    for words in (["-t", "ed25519", "-N", ""], ["-t", "ecdsa", "-N", "a passphrase"]):
        key.unlink()
        _do("ssh-keygen", "-q", *words, "-f", key)
        with pytest.raises(FealError, match="node.key is no key of `ssh-keygen -t ecdsa` without passphrase"):
            site_key(alder)
        key.with_suffix(".key.pub").unlink()
    key.write_bytes(key.read_bytes()[:40])
    with pytest.raises(FealError, match="node.key is no key"):
        site_key(alder)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe"])
def test_an_authority_that_is_no_certificate(content: bytes, alder: SitePlace) -> None:
    (alder.folder / "authority.crt").write_bytes(content)
    with pytest.raises(FealError, match="authority.crt is no certificate: get it from the coordinator again"):
        site_authority(alder)
