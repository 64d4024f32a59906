"""What the machines of a consortium are told: `coordinator.yaml` at the coordinator, `site.yaml` at every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import Field, ValidationError

from feal.data.manifest import is_name
from feal.deployment.addresses import PORT, host_and_port, joined_address
from feal.deployment.secrecy import new_secret, private_folder, read_secret
from feal.errors import FealError
from feal.files import from_system, holder, read_json
from feal.settings import Section

COORDINATOR = "coordinator.yaml"
SITE = "site.yaml"


class CoordinatorSettings(Section):
    """`coordinator.yaml`; paths are relative to its folder."""

    host: str = Field(
        "127.0.0.1", description="where to listen: 0.0.0.0 for all interfaces, this machine alone by default"
    )
    port: int = Field(PORT, ge=1, le=65535, description="the one port that sites dial")
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
    strategies: list[str] = Field(
        [], description="strategies of your own (file.py:Class) that a run may name; built-in ones need no mention"
    )


AnySettings = TypeVar("AnySettings", CoordinatorSettings, SiteSettings)


@dataclass(frozen=True, kw_only=True)
class CoordinatorPlace:
    """The coordinator's folder and what its settings say."""

    folder: Path
    settings: CoordinatorSettings

    @property
    def state(self) -> Path:
        return self.folder / self.settings.state

    @property
    def authority(self) -> Path:
        return self.folder / self.settings.authority

    @property
    def running(self) -> Path:
        """Where a coordinator at work says how it is reached."""
        return self.state / "running.json"

    @property
    def seen(self) -> Path:
        """Where it is noted what was heard of sites."""
        return self.state / "seen.json"

    def secret(self, *, make: bool = False) -> str:
        """What lets `feal run` on this machine, and nobody else, start runs.

        Raises:
            FealError: there is none, others can read it, or it is not what was written.
        """
        path = self.state / "run.key"
        if not path.exists():
            if not make:
                raise self.not_running()
            private_folder(self.state)
            new_secret(path)
        return read_secret(path)

    def not_running(self) -> FealError:
        return FealError(
            f"No coordinator is at work in {self.folder}: start it with `feal deploy coordinator {self.folder}`."
        )

    def whereabouts(self) -> Whereabouts:
        """How the coordinator at work is reached from this machine; a `FealError` if none is."""
        # One that was killed leaves its file behind.
        if not self.running.exists() or holder(self.state) is None:
            raise self.not_running()
        content = read_json(self.running)
        try:
            return Whereabouts(address=str(content["address"]), insecure=bool(content["insecure"]))
        except (KeyError, TypeError) as error:
            raise self.not_running() from error


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """HOST:PORT of a SuperLink on this machine, and whether it speaks plain text."""

    address: str
    insecure: bool


@dataclass(frozen=True, kw_only=True)
class SitePlace:
    """A site's folder and what its settings say."""

    folder: Path
    settings: SiteSettings

    @property
    def state(self) -> Path:
        return self.folder / self.settings.state

    @property
    def data(self) -> Path:
        """The prepared folder; a `FealError` if nobody named one."""
        if self.settings.data is None:
            raise FealError(f"{self.folder / SITE} names no data: give the prepared folder with --data.")
        return self.folder / self.settings.data


def coordinator_place(folder: Path, changes: Mapping[str, object] | None = None) -> CoordinatorPlace:
    """The coordinator in this folder, with settings of the command line in the place of its own.

    Raises:
        FealError: there is none, or what its file says is not valid.
    """
    settings = _read(folder / COORDINATOR, CoordinatorSettings, changes or {})
    for name in settings.sites:
        _check_name(name, folder / COORDINATOR)
    host_and_port(joined_address(settings.host, settings.port))
    return CoordinatorPlace(folder=folder.absolute(), settings=settings)


def site_place(folder: Path, changes: Mapping[str, object] | None = None) -> SitePlace:
    """The site in this folder, with settings of the command line in the place of its own.

    Raises:
        FealError: there is none, or what its file says is not valid.
    """
    settings = _read(folder / SITE, SiteSettings, changes or {})
    _check_name(settings.name, folder / SITE)
    host_and_port(settings.coordinator)
    return SitePlace(folder=folder.absolute(), settings=settings)


def _read(path: Path, kind: type[AnySettings], changes: Mapping[str, object]) -> AnySettings:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FealError(f"{path} is missing: write it with `feal deploy init`, or give its folder.") from None
    except OSError as error:
        raise from_system(error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FealError(f"{path} is no YAML file: put it back from `feal deploy init`.") from error
    if not isinstance(content, dict):
        raise FealError(f"{path} holds no settings: put it back from `feal deploy init`.")
    try:
        return kind.model_validate(
            {**content, **{key: value for key, value in changes.items() if value is not None}}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FealError(f"{path}: '{where}' is not valid ({first['msg']}): mend it.") from error


def _check_name(name: str, path: Path) -> None:
    if not is_name(name):
        raise FealError(f"{path}: {name!r} is no name of a site: use letters, digits, - and _ only.")
