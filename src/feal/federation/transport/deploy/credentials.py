"""Check keys and certificates on disk before anything depends on them."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

from feal.errors import FealError
from feal.federation.transport.deploy.addresses import find_local_host
from feal.federation.transport.deploy.config import CoordinatorConfig, SiteConfig
from feal.federation.transport.deploy.secrets import check_private, require_file


def read_public_key(path: Path) -> bytes:
    """Read a site's public key (NIST curve, OpenSSH format) for Flower; raise a `FealError` if it is invalid."""
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
    _check_handshake(authority, certificate, key, host=find_local_host(settings.host))
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
