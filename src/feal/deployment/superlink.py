"""Flower's SuperLink as the coordinator runs it: one port, TLS, and only registered keys come in.

Sites use its Fleet API with their keys. Its Control API, which registers keys and starts runs, and the Runtime
API, which a run is driven by, are for whoever can read the run key in the coordinator's state folder.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    ISOLATION_MODE_PROCESS,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    TRANSPORT_TYPE_GRPC_RERE,
)
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NodeStatus
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from feal.deployment.addresses import check_plain, joined_address, own_host
from feal.deployment.credentials import public_key, server_files
from feal.deployment.deliveries import Deliveries, forget_all
from feal.deployment.door import Door, Handshake, Impatient, RunKey
from feal.deployment.holding import Holding
from feal.deployment.places import CoordinatorPlace
from feal.deployment.secrecy import private_folder
from feal.errors import FealError
from feal.files import locked, write_json

SHUTDOWN_SECONDS = 3
IDLE_SECONDS = 60
"""Longer than anybody is silent who is at work: a connection that is closed meanwhile has to be made anew."""
LOG_BYTES, OLD_LOGS = 20 * 2**20, 7


def serve(
    place: CoordinatorPlace, *, insecure: bool, ready: Callable[[str], None], say: Callable[[str], None]
) -> None:
    """Run the SuperLink in this process until it is asked to end; `ready` is told its address.

    Raises:
        FealError: plain text beyond this machine, a certificate or key that cannot be used, a port that is taken,
            another coordinator at work on the same state folder.
    """
    settings = place.settings
    if insecure:
        check_plain(settings.host)
    keys = {} if insecure else {name: public_key(place.folder / path) for name, path in settings.sites.items()}
    certificates = [] if insecure else server_files(place)
    private_folder(place.state)
    with locked(place.state), _listening(settings.host, settings.port) as listener:
        private_folder(place.state / "logs")
        app = create_app(_config(place, place.secret(make=True), certificates), SuperLinkLifespan)
        state = app.state.linkstate_factory.state()
        for name in register(state, keys):
            say(f"The key that site {name} had is no longer let in, and cannot be again: it would need a new one.")
        forget_all(state)
        server = _Server(
            _secured(
                uvicorn.Config(
                    Door(Holding(app), keys=keys.values()),
                    http=Impatient,
                    ws="none",
                    log_config=_logs(place.state / "logs" / "superlink.log"),
                    ssl_certfile=certificates[1] if certificates else None,
                    ssl_keyfile=certificates[2] if certificates else None,
                    proxy_headers=False,
                    timeout_keep_alive=IDLE_SECONDS,
                    timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                )
            ),
            lambda: ready(joined_address(settings.host, settings.port)),
        )
        address = joined_address(own_host(settings.host), settings.port)
        write_json(place.running, {"address": address, "insecure": insecure, "process": os.getpid()})
        try:
            server.run(sockets=[listener])
        finally:
            place.running.unlink(missing_ok=True)


def register(state: LinkState, keys: Mapping[str, bytes]) -> list[str]:
    """Have the SuperLink know these keys by these names, and no others; gives the sites whose keys were removed.

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
    removed = [name for name, node in known.items() if keys.get(name) != node.public_key]
    for name in removed:
        state.delete_node(owner_aid=known[name].owner_aid, node_id=known[name].node_id)
    for name, key in keys.items():
        if name not in known or known[name].public_key != key:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=name)
    return sorted(removed)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()


def _secured(config: uvicorn.Config) -> uvicorn.Config:
    """With recent TLS only, and with as many connections as this process may have at all."""
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        config.ssl.sslobject_class = Handshake
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return config


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
    """Everything goes into one file, the older ones of which are deleted; the terminal is kept for people."""
    file = {
        "class": "logging.handlers.RotatingFileHandler",
        "filename": str(path),
        "maxBytes": LOG_BYTES,
        "backupCount": OLD_LOGS,
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
