"""A run's log, line by line: what of it can be used, and what is wrong with the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_UNREADABLE = "no record can be read there"


class _Part(BaseModel):
    """As far as it is looked at; records of other versions may hold more."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Figures(_Part):
    pooled: float | None
    mean: float | None
    sites: dict[str, float | None] = {}


class _Diagnostics(_Part):
    recall: list[float | None] | None = None
    zero_evidence: float | None = None


class _Round(_Part):
    """What a round's record holds in runs of every version; see `feal.federation.reporting.round_record`."""

    round: Annotated[int, Field(ge=1)]
    labels: dict[str, Annotated[int, Field(ge=0)]]
    metrics: dict[str, _Figures]
    diagnostics: _Diagnostics
    seconds: dict[str, float]
    energy: dict[str, list[int]] = {}


class _Step(_Part):
    """What a communication round's record holds."""

    round: Annotated[int, Field(ge=1)]
    loss: dict[str, float | None]


_FORMS: Mapping[str, type[_Round | _Step]] = {"round": _Round, "step": _Step}


def read_log(log: Path, *, length: int, classes: int) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """The records in the committed `length` of a log, and a sentence for each line that is left out.

    Args:
        log: the file.
        length: bytes that the run's state vouches for; what a kill left beyond them is not looked at.
        classes: how many there are, and so how many figures by class.
    """
    if not length:
        return (), ()
    try:
        with log.open("rb") as file:
            # A damaged line that grew pushes the last one beyond the length: that is read to its end.
            content = file.read(length)
            content += b"" if content.endswith(b"\n") else file.readline()
    except OSError as error:
        return (), (f"{log} cannot be read ({error.strerror}): its figures are missing.",)
    records: list[Mapping[str, Any]] = []
    problems: list[str] = []
    known: set[int] = set()
    for number, line in enumerate(content.splitlines(), start=1):
        record = _parsed(line)
        why = _UNREADABLE if record is None else _flaw(record, known, classes=classes)
        if record is None or why:
            problems.append(f"{log}, line {number}: {why}, so it is left out.")
            continue
        if record["event"] == "round":
            known.add(record["round"])
        records.append(record)
    if len(content) < length:
        # A damaged line that shrank makes the log shorter, too.
        are = "may be" if problems and content.endswith(b"\n") else "are"
        problems.append(f"{log} is shorter than what was written: its last figures {are} missing.")
    return tuple(records), tuple(problems)


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("event"), str) else None


def _flaw(record: Mapping[str, Any], known: set[int], *, classes: int) -> str:
    """What is wrong with a record; empty if nothing is, as with kinds that nobody looks into."""
    form = _FORMS.get(record["event"])
    if form is None:
        return ""
    try:
        found = form.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))} is not as it should be ({first['msg']})"
    if not isinstance(found, _Round):
        return ""
    if found.round in known:
        return f"round {found.round} stands there a second time"
    if found.diagnostics.recall is not None and len(found.diagnostics.recall) != classes:
        return f"diagnostics.recall has {len(found.diagnostics.recall)} numbers for {classes} classes"
    return ""
