"""What the coordinator last heard of each site, kept beside its SuperLink for `feal deploy status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feal.errors import FealError
from feal.files import read_json, write_json

LONGEST_VERSION, LONGEST_PROBLEM = 100, 600
"""Characters that are kept of what a site says."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """A site's last words."""

    at: str = ""
    """When, in UTC."""
    version: str = ""
    message: str = ""
    """What was asked of it last."""
    round: int = 0
    step: int = 0
    labelled: int | None = None
    pending: int | None = None
    problem: str = ""
    """Why its last reply could not be had, if so."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The run that messages went through last, and its sites' words."""

    run: str
    sites: Mapping[str, Heard]

    def told(self, site: str, content: Mapping[str, Any], *, message: str, round: int, step: int) -> Seen:
        """With a reply's fields, or with the `problem` that there is none."""
        before = self.sites.get(site, Heard())
        heard = replace(before, **_known(content), message=message, round=round, step=step)
        problem = str(content.get("problem") or content.get("reason") or "")[:LONGEST_PROBLEM]
        if "problem" not in content:
            heard = replace(heard, at=datetime.now(UTC).isoformat(timespec="seconds"))
        return replace(self, sites={**self.sites, site: replace(heard, problem=problem)})


def _known(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a reply tells of its site: nobody has vetted it yet, and one that failed tells nothing."""
    if content.get("status", "ok") != "ok":
        return {}
    version = content.get("version")
    counts = {name: content.get(name) for name in ("labelled", "pending")}
    return {
        **({"version": version[:LONGEST_VERSION]} if isinstance(version, str) else {}),
        **{name: count for name, count in counts.items() if type(count) is int},
    }


def read_seen(path: Path) -> Seen | None:
    """What was noted, if anything."""
    if not path.exists():
        return None
    content = read_json(path)
    known = {field.name for field in fields(Heard)}
    try:
        sites = {
            name: Heard(**{key: value for key, value in heard.items() if key in known})
            for name, heard in content["sites"].items()
        }
        return Seen(run=str(content["run"]), sites=sites)
    except (KeyError, TypeError, AttributeError) as error:
        raise FealError(f"{path} cannot be read: remove it, the next message writes it anew.") from error


def write_seen(path: Path, seen: Seen) -> None:
    """Note it."""
    write_json(path, asdict(seen))
