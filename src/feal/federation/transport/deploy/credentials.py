"""Write secrets, and check secrets, keys and certificates on disk before anything depends on them."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from feal.errors import FealError
from feal.fileio import rename_durably, wrap_os_error, write_error

if TYPE_CHECKING:
    from feal.federation.transport.deploy.config import CoordinatorConfig, SiteConfig

_SECRET_BYTES = 32
_SECRET = re.compile(rf"[0-9a-f]{{{2 * _SECRET_BYTES}}}")


def make_private_directory(path: Path) -> None:
    """Create a directory that no other user can read; an existing one keeps its permissions."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def write_secret(path: Path) -> str:
    """Write a new secret atomically to a file that no other user can read, and return it."""
    secret = secrets.token_hex(_SECRET_BYTES)
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)  # an old file may be readable by others
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(temporary, path)
    except OSError as error:
        raise write_error(path, error) from error
    return secret


def read_secret(path: Path) -> str:
    """Read a secret.

    Raises:
        FealError: others can read it, or it is empty or truncated and therefore easy to guess.
    """
    check_private(path, "a secret")
    try:
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise wrap_os_error(error) from error
    if not _SECRET.fullmatch(secret):
        raise FealError(f"{path} is empty or damaged: remove it and restart the coordinator to create another.")
    return secret


def require_file(path: Path, what: str) -> Path:
    """Return the path if the file exists; raise a `FealError` otherwise."""
    if not path.is_file():
        raise FealError(
            f"{path} is missing ({what}): see the checklist of `feal deploy init` for how to create it."
        )
    return path


def check_private(path: Path, what: str) -> None:
    """Raise a `FealError` for a secret file that others can read.

    A file owned by root may be readable by its group: services usually receive their keys that way.
    """
    status = require_file(path, what).stat()
    others = stat.S_IRWXO | (0 if status.st_uid == 0 else stat.S_IRWXG)
    if status.st_mode & others:
        raise FealError(
            f"{path} ({what}) is readable by other users of this machine: run `chmod 600` on it, "
            "and create another if another user may have read it."
        )


def read_public_key(path: Path) -> bytes:
    """Read a site's public key (NIST curve, OpenSSH format) for Flower; raise a `FealError` if it is invalid."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

    with suppress(ValueError, UnsupportedAlgorithm):
        key = load_ssh_public_key(require_file(path, "a site's public key").read_bytes())
        if isinstance(key, ec.EllipticCurvePublicKey) and uses_nist_ec_curve(key):
            return public_key_to_bytes(key)
    raise FealError(
        f"{path} is not a public key of `ssh-keygen -t ecdsa`: ask the site to send its node.key.pub again."
    )


def find_site_key(config: SiteConfig) -> Path:
    """Return the path of this site's private key.

    Raises:
        FealError: it is missing, readable by others, or not a key that Flower can use without a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import uses_nist_ec_curve

    path = config.folder / config.settings.key
    check_private(path, "this site's private key")
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_ssh_private_key(path.read_bytes(), password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and uses_nist_ec_curve(key.public_key()):
            return path
    raise FealError(
        f"{path} is not a key of `ssh-keygen -t ecdsa` without a passphrase: create one with make-key.sh."
    )


def find_site_authority(config: SiteConfig) -> Path:
    """Return the path of the certificate authority that this site trusts; raise a `FealError` if invalid."""
    path = require_file(config.folder / config.settings.authority, "the certificate authority")
    _make_client_context(path)
    return path


def find_server_files(config: CoordinatorConfig) -> list[str]:
    """Return the paths of the certificate authority and of this machine's certificate and key.

    Raises:
        FealError: one is missing, the key is readable by others, or no site would accept the certificate: expired,
            signed by another authority, with another key, or without the name of this machine.
    """
    settings = config.settings
    authority = require_file(config.authority, "the certificate authority")
    certificate = require_file(config.folder / settings.certificate, "the server's certificate")
    key = config.folder / settings.key
    check_private(key, "the server's private key")
    _check_handshake(authority, certificate, key, host=config.local_host)
    return [str(authority), str(certificate), str(key)]


def _make_client_context(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # As Flower reads it: text that OpenSSL would ignore in a file is an error.
        context.load_verify_locations(cadata=authority.read_bytes().decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise FealError(f"{authority} is not a certificate: get it from the coordinator again.") from error
    return context


def _check_handshake(authority: Path, certificate: Path, key: Path, *, host: str) -> None:
    """Perform the TLS handshake of a run on this machine in memory."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password OpenSSL would ask for a passphrase on the terminal.
        server_context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise FealError(
            f"{certificate} and {key.name} cannot be used together ({_describe(error)}): "
            "create both again, the key without a passphrase."
        ) from error
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client = _make_client_context(authority).wrap_bio(to_client, to_server, server_hostname=host)
    except ValueError as error:
        raise FealError(f"{host!r} is not a host name: give another --host.") from error
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        raise FealError(
            f"No site would accept {certificate} ({_describe(error)}): create another with "
            f"make-certificates.sh, or have {host} included in its names if it comes from elsewhere."
        ) from error


def _describe(error: OSError) -> str:
    """Return OpenSSL's message in readable form."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")
