"""A SuperNode that cannot connect ends, and its log is understood."""

import datetime
import ipaddress
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from feal.federation.transport.deploy.config import SiteSettings
from feal.federation.transport.deploy.site_daemon import diagnose_connection
from tests.federation.transport.consortium import free_port

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
YESTERDAY, TOMORROW = (NOW - 2 * DAY, NOW - DAY), (NOW + DAY, NOW + 2 * DAY)
TODAY = (NOW - DAY, NOW + DAY)


def _pem(path: Path, *parts: x509.Certificate | ec.EllipticCurvePrivateKey) -> Path:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    texts = [
        part.public_bytes(form[0]) if isinstance(part, x509.Certificate) else part.private_bytes(*form)
        for part in parts
    ]
    path.write_bytes(b"".join(texts))
    return path


class Coordinator:
    """A server with any certificate, which rejects every signature."""

    def __init__(self, folder: Path, *, host: str, dates: tuple[datetime.datetime, datetime.datetime]) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "consortium")])
        own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
        authority = self._certificate(root, root, TODAY, x509.BasicConstraints(ca=True, path_length=None))
        named = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        server = self._certificate(own, root, dates, named)
        self.authority = _pem(folder / "authority.crt", authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_pem(folder / "server.pem", server, self._key))
        self._server = HTTPServer(("127.0.0.1", 0), _Refusing)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def _certificate(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        dates: tuple[datetime.datetime, datetime.datetime],
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder(issuer, subject, self._key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(dates[0]).not_valid_after(dates[1])
        return builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordinator]:
    server = Coordinator(tmp_path, **request.param)
    yield server
    server.close()


def _last_words(coordinator: Coordinator, folder: Path) -> str:
    """Return the log of a SuperNode that ended."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", folder / "key"], check=True)
    words = ["--superlink", coordinator.address, "--host", "127.0.0.1", "--port", str(free_port())]
    words += ["--isolation", "process", "--root-certificates", str(coordinator.authority)]
    words += ["--auth-supernode-private-key", str(folder / "key")]
    done = subprocess.run(
        [sys.executable, "-m", "feal.federation.transport.deploy.supernode", str(os.getpid()), *words],
        env={**os.environ, "FLWR_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("coordinator", "said", "final"),
    [
        ({"host": "127.0.0.1", "dates": YESTERDAY}, "has expired and must be renewed there", False),
        ({"host": "127.0.0.1", "dates": TOMORROW}, "is not valid yet: check this machine's clock.", False),
        ({"host": "192.0.2.1", "dates": TODAY}, "does not contain 127.0.0.1: connect to a name in it", True),
        (
            {"host": "127.0.0.1", "dates": TODAY},
            "rejects this site's signature: check the clocks of both machines.",
            False,
        ),
    ],
    ids=["expired", "too early", "another name", "signature refused"],
    indirect=["coordinator"],
)
def test_a_connection_problem_is_recognized(
    coordinator: Coordinator, said: str, final: bool, tmp_path: Path
) -> None:
    told = diagnose_connection(
        _last_words(coordinator, tmp_path), SiteSettings(name="alder", coordinator=coordinator.address)
    )
    assert told is not None
    assert said in told.sentence
    assert told.is_final is final


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("coordinator", [{"host": "127.0.0.1", "dates": TODAY}], indirect=True)
def test_a_supernode_that_fails_ends(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.authority.write_text("no certificate")
    assert "does not contain a certificate" in _last_words(coordinator, tmp_path)


def test_another_authority_and_missing_tls_are_recognized() -> None:
    site = SiteSettings(name="alder", coordinator="hub.example.org:9092")
    other = diagnose_connection(
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", site
    )
    assert other is not None
    assert "hub.example.org:9092 is not signed by authority.crt: get that file" in other.sentence
    plain = diagnose_connection("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", site)
    assert plain is not None
    assert plain.is_final
    assert diagnose_connection("Connection attempt failed, retrying in 2.00 seconds", site) is None
