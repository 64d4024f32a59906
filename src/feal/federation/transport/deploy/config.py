"""Settings of the machines of a consortium: `coordinator.yaml` at the coordinator, `site.yaml` at each site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import Field, ValidationError

from feal.data.manifest import is_name
from feal.errors import FealError
from feal.federation.transport.deploy.addresses import PORT, format_address, parse_address
from feal.federation.transport.deploy.secrets import make_private_directory, read_secret, write_secret
from feal.fileio import lock_holder, read_json, wrap_os_error
from feal.settings import Section

COORDINATOR_FILE = "coordinator.yaml"
SITE_FILE = "site.yaml"


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


AnySettings = TypeVar("AnySettings", CoordinatorSettings, SiteSettings)


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


@dataclass(frozen=True, kw_only=True)
class Endpoint:
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


def _read(path: Path, kind: type[AnySettings], changes: Mapping[str, object]) -> AnySettings:
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
