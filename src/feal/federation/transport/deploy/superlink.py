"""Run Flower's SuperLink for the coordinator: one port, TLS, registered keys only.

Sites use the Fleet API with their keys. The Control API, which registers keys and starts runs, and the Runtime
API, which drives a run, require the run key from the coordinator's state folder.
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

from feal.errors import FealError
from feal.federation.transport.deploy.config import CoordinatorConfig, check_loopback, format_address
from feal.federation.transport.deploy.credentials import find_server_files, make_private_directory, read_public_key
from feal.federation.transport.deploy.middleware import (
    AccessFilter,
    IdleTimeoutProtocol,
    LoggedHandshake,
    LongPolling,
    RedeliveryPlugin,
    RunKeyAuthenticator,
    discard_messages,
)
from feal.fileio import lock_directory, write_json

SHUTDOWN_SECONDS = 3
IDLE_SECONDS = 60
"""Longer than any pause of a working site, which would have to connect again."""
MAX_LOG_BYTES, OLD_LOGS = 20 * 2**20, 7


def serve_coordinator(
    config: CoordinatorConfig,
    *,
    insecure: bool,
    ready: Callable[[str], None],
    notify: Callable[[str], None],
) -> None:
    """Run the SuperLink in this process until it is terminated; `ready` is called with its address.

    Raises:
        FealError: plain text with another machine, an unusable certificate or key, a port in use, or another
            coordinator that uses the same state folder.
    """
    settings = config.settings
    if insecure:
        check_loopback(settings.host)
    keys = (
        {} if insecure else {name: read_public_key(config.folder / path) for name, path in settings.sites.items()}
    )
    certificates = [] if insecure else find_server_files(config)
    make_private_directory(config.state)
    with lock_directory(config.state), _open_listener(settings.host, settings.port) as listener:
        make_private_directory(config.state / "logs")
        app = create_app(_make_config(config, config.read_run_key(create=True), certificates), SuperLinkLifespan)
        state = app.state.linkstate_factory.state()
        for name in register_keys(state, keys):
            notify(f"The key of site {name} was removed and cannot be registered again: the site needs a new one.")
        discard_messages(state)
        server = _Server(
            _harden(
                uvicorn.Config(
                    AccessFilter(LongPolling(app), keys=keys.values()),
                    http=IdleTimeoutProtocol,
                    ws="none",
                    log_config=_make_log_config(config.state / "logs" / "superlink.log"),
                    ssl_certfile=certificates[1] if certificates else None,
                    ssl_keyfile=certificates[2] if certificates else None,
                    proxy_headers=False,
                    timeout_keep_alive=IDLE_SECONDS,
                    timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                )
            ),
            lambda: ready(format_address(settings.host, settings.port)),
        )
        address = format_address(config.local_host, settings.port)
        write_json(config.endpoint_file, {"address": address, "insecure": insecure, "process": os.getpid()})
        try:
            server.run(sockets=[listener])
        finally:
            config.endpoint_file.unlink(missing_ok=True)


def register_keys(state: LinkState, keys: Mapping[str, bytes]) -> list[str]:
    """Register exactly these keys under these names, and return the sites whose keys were removed.

    Raises:
        FealError: two sites share a key, or a key was removed before; then nothing is changed.
    """
    nodes = list(state.get_node_info())
    known = {node.name: node for node in nodes if node.status != NodeStatus.UNREGISTERED}
    for name, key in keys.items():
        # Flower neither accepts a removed key again nor renames one.
        others = [node for node in nodes if node.public_key == key and node is not known.get(name)]
        if others or list(keys.values()).count(key) > 1:
            raise FealError(
                f"The key of site {name} belongs to another site or was removed before: "
                "ask the site to create a new one with make-key.sh."
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


def _harden(config: uvicorn.Config) -> uvicorn.Config:
    """Require TLS 1.2 or later, and raise the limit of connections to the maximum."""
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        config.ssl.sslobject_class = LoggedHandshake
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return config


def _make_config(config: CoordinatorConfig, secret: str, certificates: Sequence[str]) -> SuperLinkLifespanConfig:
    authority, certificate, key = certificates or (None, None, None)
    return SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=config.settings.host,
        port=config.settings.port,
        insecure=not certificates,
        certificates=None,
        superexec_auth_secret=secret.encode(),
        authn_plugin=RunKeyAuthenticator(secret),
        event_log_plugin=None,
        fleet_event_log_plugin=RedeliveryPlugin(),
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=bool(certificates),
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=authority,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        database=str(config.state / "superlink.sqlite") if certificates else FLWR_IN_MEMORY_DB_NAME,
        isolation=ISOLATION_MODE_PROCESS,
        runtime_dependency_install=False,
    )


@contextlib.contextmanager
def _open_listener(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise FealError(
                f"Cannot listen at {format_address(host, port)} ({error.strerror}): choose another --port."
            ) from error
        yield listener


def _make_log_config(path: Path) -> dict[str, Any]:
    """Return a configuration that logs everything to one rotated file and nothing to the terminal."""
    file = {
        "class": "logging.handlers.RotatingFileHandler",
        "filename": str(path),
        "maxBytes": MAX_LOG_BYTES,
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
