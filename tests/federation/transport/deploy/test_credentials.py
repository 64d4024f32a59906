"""Files that only their owner may read; unusable keys and certificates are reported at the start."""

import stat
import subprocess
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.deploy.config import (
    CoordinatorConfig,
    SiteConfig,
    read_coordinator_config,
    read_site_config,
    write_consortium_files,
)
from feal.federation.transport.deploy.credentials import (
    check_private,
    find_server_files,
    find_site_authority,
    find_site_key,
    read_secret,
    require_file,
    write_secret,
)


def _do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A consortium with its certificates and keys."""
    folder = tmp_path / "kit"
    write_consortium_files(folder, address="hub.example.org:9092", sites=["alder"])
    _do("sh", folder / "coordinator" / "make-certificates.sh")
    _do("sh", folder / "sites" / "alder" / "make-key.sh")
    return folder


@pytest.fixture
def hub(kit: Path) -> CoordinatorConfig:
    return read_coordinator_config(kit / "coordinator")


@pytest.fixture
def alder(kit: Path) -> SiteConfig:
    return read_site_config(kit / "sites" / "alder")


def _signed(hub: CoordinatorConfig, names: str, *dates: str) -> None:
    """Give the coordinator another certificate of the same authority for the same key."""
    folder = hub.authority.parent
    (folder / "names").write_text(f"subjectAltName={names}\n")
    request = ["req", "-new", "-key", folder / "server.key", "-subj", "/CN=x", "-out", folder / "csr"]
    _do("openssl", *request)
    signing = ["-CA", hub.authority, "-CAkey", folder / "authority.key", "-CAcreateserial"]
    signing += ["-extfile", folder / "names", *dates]
    _do("openssl", "x509", "-req", "-in", folder / "csr", *signing, "-out", folder / "server.crt")


def test_the_scripts_create_usable_files(hub: CoordinatorConfig, alder: SiteConfig) -> None:
    assert [Path(path).name for path in find_server_files(hub)] == ["authority.crt", "server.crt", "server.key"]
    assert find_site_key(alder) == alder.folder / "node.key"
    (alder.folder / "authority.crt").write_bytes(hub.authority.read_bytes())
    assert find_site_authority(alder) == alder.folder / "authority.crt"


def test_certificates_that_no_site_would_accept(hub: CoordinatorConfig) -> None:
    _signed(hub, "DNS:hub.example.org")
    with pytest.raises(FealError, match=r"server.crt \(IP address mismatch.*have 127.0.0.1 included in its names"):
        find_server_files(hub)
    _signed(hub, "IP:127.0.0.1", "-days", "-1")
    with pytest.raises(FealError, match=r"server.crt \(certificate has expired\): create another"):
        find_server_files(hub)
    _signed(hub, "IP:127.0.0.1", "-days", "2")
    find_server_files(hub)
    other = ["-keyout", hub.folder / "other", "-out", hub.authority, "-subj", "/CN=consortium"]
    _do("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *other)
    with pytest.raises(FealError, match="No site would accept .*server.crt"):
        find_server_files(hub)


def test_a_key_of_another_certificate_or_readable_by_others(hub: CoordinatorConfig) -> None:
    key = hub.folder / hub.settings.key
    key.chmod(0o644)
    with pytest.raises(FealError, match=r"server.key \(the server's private key\) is readable by other users"):
        find_server_files(hub)
    key.write_bytes((hub.authority.parent / "authority.key").read_bytes())
    key.chmod(0o600)
    with pytest.raises(FealError, match="server.crt and server.key cannot be used together .*mismatch"):
        find_server_files(hub)
    key.write_text("")
    with pytest.raises(FealError, match="cannot be used together"):
        find_server_files(hub)
    key.unlink()
    with pytest.raises(FealError, match=r"server.key is missing"):
        find_server_files(hub)


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(hub: CoordinatorConfig) -> None:
    key = hub.folder / hub.settings.key
    _do("openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key.with_name("locked"))
    key.with_name("locked").replace(key)
    key.chmod(0o600)
    with pytest.raises(FealError, match="cannot be used together .* the key without a passphrase"):
        find_server_files(hub)


def test_a_host_that_no_certificate_can_contain(kit: Path) -> None:
    with pytest.raises(FealError, match="'x{70}' is not a host name"):
        find_server_files(read_coordinator_config(kit / "coordinator", {"host": "x" * 70}))


def test_a_site_key_must_be_valid_and_private(alder: SiteConfig) -> None:
    key = alder.folder / "node.key"
    key.chmod(0o644)
    with pytest.raises(FealError, match="node.key .* is readable by other users"):
        find_site_key(alder)
    for words in (["-t", "ed25519", "-N", ""], ["-t", "ecdsa", "-N", "a passphrase"]):
        key.unlink()
        _do("ssh-keygen", "-q", *words, "-f", key)
        with pytest.raises(FealError, match="node.key is not a key of `ssh-keygen -t ecdsa` without a passphrase"):
            find_site_key(alder)
        key.with_suffix(".key.pub").unlink()
    key.write_bytes(key.read_bytes()[:40])
    with pytest.raises(FealError, match="node.key is not a key"):
        find_site_key(alder)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe"])
def test_an_authority_that_is_not_a_certificate(content: bytes, alder: SiteConfig) -> None:
    (alder.folder / "authority.crt").write_bytes(content)
    with pytest.raises(FealError, match="authority.crt is not a certificate: get it from the coordinator again"):
        find_site_authority(alder)


def test_a_secret_is_new_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text("open to all")
    path.chmod(0o644)
    first = write_secret(path)
    assert len(first) == 64
    assert read_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_secret(path) != first
    assert [found.name for found in tmp_path.iterdir()] == ["run.key"]


@pytest.mark.parametrize("text", ["", "\n", "0" * 63, "secret", "g" * 64, "0" * 65, "é" * 64])
def test_a_secret_that_could_be_guessed_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(FealError, match="run.key is empty or damaged: remove it"):
        read_secret(path)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    path.touch()
    path.chmod(mode)
    with pytest.raises(
        FealError, match=r"node.key \(this site's .*\) is readable by other users .* run `chmod 600` on it"
    ):
        check_private(path, "this site's private key")
    path.chmod(0o400)
    check_private(path, "this site's private key")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FealError, match=r"node.key is missing \(this site's private key\)"):
        require_file(tmp_path / "node.key", "this site's private key")
