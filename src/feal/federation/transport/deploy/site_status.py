"""The last known status of each site, stored beside the SuperLink for `feal deploy status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feal.errors import FealError
from feal.fileio import read_json, write_json

MAX_VERSION_CHARACTERS, MAX_PROBLEM_CHARACTERS = 100, 600


@dataclass(frozen=True, kw_only=True)
class SiteStatus:
    """The content of a site's last reply."""

    at: str = ""
    """Time of the reply, in UTC."""
    version: str = ""
    message: str = ""
    """Kind of the last request."""
    round: int = 0
    step: int = 0
    labelled: int | None = None
    pending: int | None = None
    problem: str = ""
    """Why the last reply is missing, if it is."""


@dataclass(frozen=True, kw_only=True)
class StatusFile:
    """The status of the sites in the most recent run."""

    run: str
    sites: Mapping[str, SiteStatus]

    def with_reply(
        self, site: str, content: Mapping[str, Any], *, message: str, round: int, step: int
    ) -> StatusFile:
        """Return the status updated with a reply's fields, or with the `problem` that prevented a reply."""
        before = self.sites.get(site, SiteStatus())
        status = replace(before, **_extract_fields(content), message=message, round=round, step=step)
        problem = str(content.get("problem") or content.get("reason") or "")[:MAX_PROBLEM_CHARACTERS]
        if "problem" not in content:
            status = replace(status, at=datetime.now(UTC).isoformat(timespec="seconds"))
        return replace(self, sites={**self.sites, site: replace(status, problem=problem)})


def _extract_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid status fields of an unvalidated reply; a failed reply has none."""
    if content.get("status", "ok") != "ok":
        return {}
    version = content.get("version")
    counts = {name: content.get(name) for name in ("labelled", "pending")}
    return {
        **({"version": version[:MAX_VERSION_CHARACTERS]} if isinstance(version, str) else {}),
        **{name: count for name, count in counts.items() if type(count) is int},
    }


def read_site_status(path: Path) -> StatusFile | None:
    """Read the status file; None if there is none."""
    if not path.exists():
        return None
    content = read_json(path)
    known = {field.name for field in fields(SiteStatus)}
    try:
        sites = {
            name: SiteStatus(**{key: value for key, value in status.items() if key in known})
            for name, status in content["sites"].items()
        }
        return StatusFile(run=str(content["run"]), sites=sites)
    except (KeyError, TypeError, AttributeError) as error:
        raise FealError(f"{path} cannot be read: remove it; the next message writes a new one.") from error


def write_site_status(path: Path, status: StatusFile) -> None:
    """Write the status file."""
    write_json(path, asdict(status))
