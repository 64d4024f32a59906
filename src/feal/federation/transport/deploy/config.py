"""The folders of a consortium: their settings, the addresses in them, and how `feal deploy init` writes them."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml
from pydantic import Field, ValidationError

from feal.data.manifest import is_name
from feal.errors import FealError
from feal.federation.transport.base import set_environment
from feal.federation.transport.deploy.credentials import make_private_directory, read_secret, write_secret
from feal.fileio import atomic_directory, lock_holder, read_json, render_template, wrap_os_error
from feal.settings import Section

COORDINATOR_FILE = "coordinator.yaml"
SITE_FILE = "site.yaml"
PORT = 9092
_TEMPLATES = Path(__file__).parent / "templates"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ALL_INTERFACES = {4: "0.0.0.0", 6: "::"}
_NO_PROXY = "no_proxy"
# A host is written into certificates and scripts: no characters that have a meaning there.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class CoordinatorSettings(Section):
    """`coordinator.yaml`; paths are relative to its folder."""

    host: str = Field(
        "127.0.0.1", description="where to listen: 0.0.0.0 for all interfaces; this machine only by default"
    )
    port: int = Field(PORT, ge=1, le=65535, description="the only port, to which sites connect")
    authority: str = Field("certificates/authority.crt", description="the consortium's certificate authority")
    certificate: str = Field("certificates/server.crt", description="this machine's certificate")
    key: str = Field("certificates/server.key", description="its private key")
    state: str = Field("state", description="folder for the SuperLink's database, its log and the run key")
    sites: dict[str, str] = Field({}, description="the name of each site and its public key")


class SiteSettings(Section):
    """`site.yaml`; paths are relative to its folder."""

    name: str = Field(description="the site's name, the same as in the coordinator's settings")
    coordinator: str = Field(description="the coordinator's HOST:PORT")
    authority: str = Field("authority.crt", description="the consortium's certificate authority")
    key: str = Field("node.key", description="this site's private key; it never leaves this machine")
    data: str | None = Field(None, description="prepared folder with this site's data")
    state: str = Field("state", description="folder for labels, models and logs of this site")
    plugins: list[str] = Field(
        [],
        description="your own strategies, networks and metrics (file.py:Class) that a run may use; "
        "built-in ones are always allowed",
    )


_Settings = TypeVar("_Settings", CoordinatorSettings, SiteSettings)


@dataclass(frozen=True, kw_only=True)
class CoordinatorConfig:
    """The coordinator's directory and its settings."""

    folder: Path
    settings: CoordinatorSettings

    @property
    def state(self) -> Path:
        return self.folder / self.settings.state

    @property
    def authority(self) -> Path:
        return self.folder / self.settings.authority

    @property
    def local_host(self) -> str:
        """The host by which this machine reaches its own server."""
        return "127.0.0.1" if self.settings.host in _ALL_INTERFACES.values() else self.settings.host

    @property
    def endpoint_file(self) -> Path:
        """Path of the file in which a running coordinator publishes its address."""
        return self.state / "running.json"

    @property
    def status_file(self) -> Path:
        """Path of the last known status of the sites."""
        return self.state / "site-status.json"

    def read_run_key(self, *, create: bool = False) -> str:
        """Return the secret that authorizes `feal run` on this machine to start runs.

        Raises:
            FealError: it does not exist, others can read it, or it is damaged.
        """
        path = self.state / "run.key"
        if not path.exists():
            if not create:
                raise self._make_not_running_error()
            make_private_directory(self.state)
            write_secret(path)
        return read_secret(path)

    def _make_not_running_error(self) -> FealError:
        return FealError(
            f"No coordinator is running in {self.folder}: start it with `feal deploy coordinator {self.folder}`."
        )

    def read_endpoint(self) -> Endpoint:
        """Return the endpoint of the running coordinator; raise a `FealError` if none is running."""
        # A killed coordinator leaves its file behind.
        if not self.endpoint_file.exists() or lock_holder(self.state) is None:
            raise self._make_not_running_error()
        content = read_json(self.endpoint_file)
        try:
            return Endpoint(address=str(content["address"]), insecure=bool(content["insecure"]))
        except (KeyError, TypeError) as error:
            raise self._make_not_running_error() from error


class Endpoint(NamedTuple):
    """HOST:PORT of a SuperLink on this machine, and whether it uses plain text."""

    address: str
    insecure: bool


@dataclass(frozen=True, kw_only=True)
class SiteConfig:
    """A site's directory and its settings."""

    folder: Path
    settings: SiteSettings

    @property
    def state(self) -> Path:
        return self.folder / self.settings.state

    @property
    def data(self) -> Path:
        """The prepared folder; raise a `FealError` if none is set."""
        if self.settings.data is None:
            raise FealError(f"{self.folder / SITE_FILE} names no data: give the prepared folder with --data.")
        return self.folder / self.settings.data


def read_coordinator_config(folder: Path, changes: Mapping[str, object] | None = None) -> CoordinatorConfig:
    """Read the coordinator's directory; `changes` from the command line override its settings.

    Raises:
        FealError: its file is missing or invalid.
    """
    settings = _read(folder / COORDINATOR_FILE, CoordinatorSettings, changes or {})
    for name in settings.sites:
        _check_name(name, folder / COORDINATOR_FILE)
    parse_address(format_address(settings.host, settings.port))
    return CoordinatorConfig(folder=folder.absolute(), settings=settings)


def read_site_config(folder: Path, changes: Mapping[str, object] | None = None) -> SiteConfig:
    """Read a site's directory; `changes` from the command line override its settings.

    Raises:
        FealError: its file is missing or invalid.
    """
    settings = _read(folder / SITE_FILE, SiteSettings, changes or {})
    _check_name(settings.name, folder / SITE_FILE)
    parse_address(settings.coordinator)
    return SiteConfig(folder=folder.absolute(), settings=settings)


def _read(path: Path, kind: type[_Settings], changes: Mapping[str, object]) -> _Settings:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FealError(
            f"{path} is missing: write it with `feal deploy init`, or name the folder that holds it."
        ) from None
    except OSError as error:
        raise wrap_os_error(error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FealError(f"{path} is not a YAML file: restore it from `feal deploy init`.") from error
    if not isinstance(content, dict):
        raise FealError(f"{path} contains no settings: restore it from `feal deploy init`.")
    try:
        return kind.model_validate(
            {**content, **{key: value for key, value in changes.items() if value is not None}}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FealError(f"{path}: '{where}' is invalid ({first['msg']}): correct it.") from error


def _check_name(name: str, path: Path) -> None:
    if not is_name(name):
        raise FealError(f"{path}: {name!r} is not a valid site name: use only letters, digits, - and _.")


def write_consortium_files(folder: Path, *, address: str, sites: Sequence[str]) -> None:
    """Write the folders of a consortium.

    Args:
        folder: a new or empty folder.
        address: HOST:PORT of the coordinator; unless it is a loopback address, it listens on all interfaces.
        sites: names of the sites.

    Raises:
        FealError: an invalid address or name, or a folder that is not empty.
    """
    host, port = parse_address(address)
    for name in sites:
        if not is_name(name) or list(sites).count(name) > 1:
            raise FealError(
                f"{name!r} is not a valid site name or is given twice: use only letters, digits, - and _."
            )
    names = [f"IP:{host}" if is_ip_address(host) else f"DNS:{host}", "DNS:localhost", "IP:127.0.0.1"]
    address = format_address(host, port)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FealError(f"{folder} is not empty: name a new folder.")
    if folder.absolute() == Path.cwd():
        # The finished folder replaces the old one, in which a shell would stay.
        raise FealError("Cannot create the consortium in the current directory: name a new folder.")
    with atomic_directory(folder) as new:
        coordinator = new / "coordinator"
        keys = {name: f"keys/{name}.pub" for name in sorted(sites)}
        (coordinator / "keys").mkdir(parents=True)
        settings = CoordinatorSettings(host=choose_listen_host(host), port=port, sites=keys)
        _write_settings(coordinator / COORDINATOR_FILE, settings)
        _write_template(coordinator / "make-certificates.sh", names=",".join(dict.fromkeys(names)))
        _write_template(coordinator / "start.sh", template="start-coordinator.sh")
        for name in sorted(sites):
            site = new / "sites" / name
            site.mkdir(parents=True)
            _write_settings(site / SITE_FILE, SiteSettings(name=name, coordinator=address))
            _write_template(site / "make-key.sh", name=name)
            _write_template(site / "start.sh", template="start-site.sh")
        _write_template(new / "CHECKLIST.md", address=address, port=port, sites=", ".join(sorted(sites)))


def _write_template(path: Path, *, template: str = "", **content: object) -> None:
    """Write a file from the template of its name, or of another."""
    path.write_text(render_template(_TEMPLATES / (template or path.name), **content), encoding="utf-8")


def _write_settings(path: Path, settings: Section) -> None:
    """Write settings with their descriptions as comments."""
    lines = []
    for name, field in type(settings).model_fields.items():
        entry = yaml.safe_dump({name: getattr(settings, name)}, sort_keys=False).rstrip()
        lines += [f"# {field.description}", entry if getattr(settings, name) is not None else f"# {name}:"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT into its parts.

    >>> parse_address("hub.example.org:9092"), parse_address("[::1]:80")
    (('hub.example.org', 9092), ('::1', 80))
    """
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (is_ip_address(host) or _HOST.fullmatch(host)) or not _is_port(port):
        raise FealError(f"{address!r} is not an address: write HOST:PORT, for example hub.example.org:{PORT}.")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's loopback; the only accepted name is localhost, if it resolves so.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "hub.example.org")]
    [True, True, True, False, False]
    """
    if is_ip_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" and all(ipaddress.ip_address(found).is_loopback for found in _resolve(host))


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return False


def choose_listen_host(host: str) -> str:
    """Return where to listen to be reached as `host`: the loopback address or all interfaces.

    >>> [choose_listen_host(host) for host in ("localhost", "::1", "10.1.2.3", "2001:db8::1", "hub.example.org")]
    ['127.0.0.1', '::1', '0.0.0.0', '::', '0.0.0.0']
    """
    version = ipaddress.ip_address(host).version if is_ip_address(host) else 4
    if is_loopback(host):
        return host if is_ip_address(host) else "127.0.0.1"
    return _ALL_INTERFACES[version]


def check_loopback(host: str) -> None:
    """Raise a `FealError` for plain text with another machine."""
    if not is_loopback(host):
        raise FealError(
            f"--insecure is for trials on one machine, and {host} is not its loopback address: "
            "omit --insecure and use the certificates."
        )


def extend_no_proxy(*hosts: str) -> dict[str, str]:
    """Return the environment variable that exempts these hosts from the proxy, in addition to its current value.

    >>> import os
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, {"NO_PROXY": "hub.example.org"}, clear=True):
    ...     extend_no_proxy("127.0.0.1")
    {'no_proxy': 'hub.example.org,127.0.0.1'}
    """
    current = os.environ.get(_NO_PROXY) or os.environ.get(_NO_PROXY.upper(), "")
    return {_NO_PROXY: ",".join(dict.fromkeys([*filter(None, current.split(",")), *hosts]))}


def bypass_proxy(*hosts: str) -> AbstractContextManager[None]:
    """Exempt these hosts from the proxy for clients created in this block, which then read the environment."""
    return set_environment(extend_no_proxy(*hosts))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _resolve(name: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []
