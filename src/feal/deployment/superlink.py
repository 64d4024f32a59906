"""Flower's SuperLink as the coordinator runs it: one port, TLS, and only registered keys come in.

Sites use its Fleet API with their keys. Its Control API, which registers keys and starts runs, and the Runtime
API, which a run is driven by, are for whoever can read the run key in the coordinator's state folder.
"""

from __future__ import annotations

import contextlib
import hmac
import logging.config
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.constant import (
    ACCESS_TOKEN_KEY,
    HEARTBEAT_DEFAULT_INTERVAL,
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.auth.typing import AccountInfo
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NodeStatus
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve
from flwr.superlink.auth_plugin.noop_auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from feal.deployment.addresses import check_plain, joined_address
from feal.deployment.deliveries import Deliveries, forget_all
from feal.deployment.holding import Holding
from feal.deployment.places import CoordinatorPlace, existing
from feal.errors import FealError
from feal.files import write_json

SHUTDOWN_SECONDS = 3
IDLE_SECONDS = 60
"""Longer than anybody is silent who is at work: a connection that is closed meanwhile has to be made anew."""
ROTATED_LOGS = 7


def serve(place: CoordinatorPlace, *, insecure: bool, ready: Callable[[str], None]) -> None:
    """Run the SuperLink in this process until it is asked to end; `ready` is told its address.

    Raises:
        FealError: plain text beyond this machine, a certificate or key that cannot be used, a port that is taken.
    """
    settings = place.settings
    if insecure:
        check_plain(settings.host)
    secret = place.secret(make=True)
    (place.state / "logs").mkdir(parents=True, exist_ok=True)
    keys = {} if insecure else {name: public_key(place.folder / path) for name, path in settings.sites.items()}
    certificates = [] if insecure else _certificates(place)
    with _listening(settings.host, settings.port) as listener:
        app = create_app(_config(place, secret, certificates), SuperLinkLifespan)
        state = app.state.linkstate_factory.state()
        register(state, keys)
        forget_all(state)
        config = uvicorn.Config(
            Holding(app),
            log_config=_logs(place.state / "logs" / "superlink.log"),
            ssl_certfile=certificates[1] if certificates else None,
            ssl_keyfile=certificates[2] if certificates else None,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        try:
            config.load()
        except (ssl.SSLError, OSError) as error:
            raise FealError(f"{certificates[1]} and its key cannot be used ({error}): make them anew.") from error
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
            config.ssl.sslobject_class = _Watched
        host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"
        write_json(
            place.running,
            {"address": joined_address(host, settings.port), "insecure": insecure, "process": os.getpid()},
        )
        try:
            _Server(config, lambda: ready(joined_address(settings.host, settings.port))).run(sockets=[listener])
        finally:
            place.running.unlink(missing_ok=True)


def register(state: LinkState, keys: Mapping[str, bytes]) -> None:
    """Have the SuperLink know these keys by these names, and no others.

    Raises:
        FealError: a key of two sites, or one that Flower would not take again; then nothing is changed.
    """
    nodes = list(state.get_node_info())
    known = {node.name: node for node in nodes if node.status != NodeStatus.UNREGISTERED}
    for name, key in keys.items():
        # Flower never takes a key again that was removed once, nor gives one another name.
        others = [node for node in nodes if node.public_key == key and node is not known.get(name)]
        if others or list(keys.values()).count(key) > 1:
            raise FealError(
                f"The key of site {name} is another site's, or one that was removed before: "
                "have the site make a new one with make-key.sh."
            )
    for name, node in known.items():
        if keys.get(name) != node.public_key:
            state.delete_node(owner_aid=node.owner_aid, node_id=node.node_id)
    for name, key in keys.items():
        if name not in known or known[name].public_key != key:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=name)


def public_key(path: Path) -> bytes:
    """A site's public key as Flower keeps it; one that is no NIST curve's in OpenSSH format is a `FealError`."""
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_ssh_public_key(existing(path, "a site's public key").read_bytes())
        if isinstance(key, ec.EllipticCurvePublicKey) and uses_nist_ec_curve(key):
            return public_key_to_bytes(key)
    raise FealError(
        f"{path} is no public key of `ssh-keygen -t ecdsa`: have the site send its node.key.pub again."
    )


class RunKey(NoOpControlAuthnPlugin):
    """Lets those in who hold the run key."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        held = given if isinstance(given, bytes) else given.encode()
        valid = hmac.compare_digest(held, self._secret)
        return valid, AccountInfo(flwr_aid=NOOP_FLWR_AID, account_name=NOOP_ACCOUNT_NAME) if valid else None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()


class _Watched(ssl.SSLObject):
    """Says in the log when a handshake failed, which asyncio passes over in silence."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            logging.getLogger("uvicorn.error").warning("A connection was refused: %s", error.reason or error)
            raise


def _certificates(place: CoordinatorPlace) -> list[str]:
    settings = place.settings
    paths = {
        settings.authority: "the certificate authority",
        settings.certificate: "the server's certificate",
        settings.key: "the server's private key",
    }
    return [str(existing(place.folder / path, what)) for path, what in paths.items()]


def _config(place: CoordinatorPlace, secret: str, certificates: Sequence[str]) -> SuperLinkLifespanConfig:
    authority, certificate, key = certificates or (None, None, None)
    return SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=place.settings.host,
        port=place.settings.port,
        insecure=not certificates,
        certificates=None,
        superexec_auth_secret=secret.encode(),
        authn_plugin=RunKey(secret),
        event_log_plugin=None,
        fleet_event_log_plugin=Deliveries(),
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=bool(certificates),
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=authority,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        database=str(place.state / "superlink.sqlite") if certificates else FLWR_IN_MEMORY_DB_NAME,
        isolation=ISOLATION_MODE_PROCESS,
        runtime_dependency_install=False,
    )


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise FealError(
                f"Nobody can listen at {joined_address(host, port)} ({error.strerror}): take another --port."
            ) from error
        yield listener


def _logs(path: Path) -> dict[str, Any]:
    """Everything goes into one file, a new one every day; the terminal is kept for people."""
    file = {
        "class": "logging.handlers.TimedRotatingFileHandler",
        "filename": str(path),
        "when": "D",
        "backupCount": ROTATED_LOGS,
        "formatter": "line",
        "filters": ["routine"],
    }
    logger = {"handlers": ["file"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "filters": {"routine": {"()": "flwr.supercore.http_logging.RoutineAccessFilter"}},
        "handlers": {"file": file},
        "loggers": dict.fromkeys(("flwr", "uvicorn"), logger),
    }
