"""Keys and certificates as they lie on a disk: whether they can be used, before anybody is kept waiting."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

from feal.deployment.addresses import own_host
from feal.deployment.places import CoordinatorPlace, SitePlace
from feal.deployment.secrecy import check_private, existing
from feal.errors import FealError


def public_key(path: Path) -> bytes:
    """A site's public key as Flower keeps it; one that is no NIST curve's in OpenSSH format is a `FealError`."""
    with suppress(ValueError, UnsupportedAlgorithm):
        key = load_ssh_public_key(existing(path, "a site's public key").read_bytes())
        if isinstance(key, ec.EllipticCurvePublicKey) and uses_nist_ec_curve(key):
            return public_key_to_bytes(key)
    raise FealError(
        f"{path} is no public key of `ssh-keygen -t ecdsa`: have the site send its node.key.pub again."
    )


def site_key(place: SitePlace) -> Path:
    """Where this site's private key is.

    Raises:
        FealError: it is missing, open to others, or no key that Flower can use without asking for a passphrase.
    """
    path = place.folder / place.settings.key
    check_private(path, "this site's private key")
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_ssh_private_key(path.read_bytes(), password=None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and uses_nist_ec_curve(key.public_key()):
            return path
    raise FealError(f"{path} is no key of `ssh-keygen -t ecdsa` without passphrase: make one with make-key.sh.")


def site_authority(place: SitePlace) -> Path:
    """Where the certificate authority is that this site believes; a file that is none is a `FealError`."""
    path = existing(place.folder / place.settings.authority, "the certificate authority")
    _trusting(path)
    return path


def server_files(place: CoordinatorPlace) -> list[str]:
    """The paths of the certificate authority, and of this machine's certificate and key.

    Raises:
        FealError: one is missing, the key is open to others, or no site could believe them: out of date, of
            another authority or key, or without this machine among the names.
    """
    settings = place.settings
    authority = existing(place.authority, "the certificate authority")
    certificate = existing(place.folder / settings.certificate, "the server's certificate")
    key = place.folder / settings.key
    check_private(key, "the server's private key")
    _rehearse(authority, certificate, key, host=own_host(settings.host))
    return [str(authority), str(certificate), str(key)]


def _trusting(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # As Flower reads it: text that OpenSSL would pass over in a file is an error.
        context.load_verify_locations(cadata=authority.read_bytes().decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise FealError(f"{authority} is no certificate: get it from the coordinator again.") from error
    return context


def _rehearse(authority: Path, certificate: Path, key: Path, *, host: str) -> None:
    """Do what a run on this machine will do as it connects, without a connection."""
    offering = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without an answer of ours OpenSSL would ask the terminal for a passphrase, and wait.
        offering.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise FealError(
            f"{certificate} and {key.name} cannot be used together ({_why(error)}): "
            "make both anew, and the key without passphrase."
        ) from error
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client = _trusting(authority).wrap_bio(to_client, to_server, server_hostname=host)
    except ValueError as error:
        raise FealError(f"{host!r} is no name of a machine: give another --host.") from error
    server = offering.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        raise FealError(
            f"No site could believe {certificate} ({_why(error)}): make another with "
            f"make-certificates.sh, or have {host} among its names if it comes from elsewhere."
        ) from error


def _why(error: OSError) -> str:
    """What OpenSSL found, as it says it to people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")
