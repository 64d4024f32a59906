"""What a report says, as plain data: no markup, nothing drawn twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from feal.analysis.arms import arms_of
from feal.analysis.by_round import by_round
from feal.analysis.figures import FIGURES, data_of
from feal.analysis.grids import Grid
from feal.analysis.report.answer import Answer, answer
from feal.analysis.report.missing import why_missing
from feal.analysis.report.pictures import Gallery, gallery
from feal.analysis.report.reproduction import Reproduction, reproduction
from feal.analysis.runs import Reading, Run, arms
from feal.analysis.tables_of_arms import round_grid
from feal.errors import FealError
from feal.federation.statistics import primary_metric
from feal.version import VERSION

HEIGHT = 450
"""Of a figure that does not say it, in pixels; plotly's own default."""

SECTIONS = {
    "answer": ("Answer", "The question and the answer"),
    "learning": ("Learning", "How the strategies learn"),
    "selection": ("Selected", "What was selected"),
    "uncertainty": ("Uncertainty", "Uncertainty"),
    "shift": ("Domain shift", "Domain shift between sites"),
    "cost": ("Cost", "Cost"),
    "reproduce": ("Reproduce", "How to reproduce it"),
}
"""In their order, with a short name for the tab and a title."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A figure, or the reason why there is none."""

    name: str
    title: str
    reading: str
    drawing: str | None
    """Plotly's JSON."""
    height: int = HEIGHT
    why: str = ""

    @property
    def stamp(self) -> str:
        """Changes with the drawing."""
        return hashlib.blake2b((self.drawing or "").encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report."""

    name: str
    short: str
    title: str
    figures: tuple[Shown, ...]


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """A run and how it stands."""

    arm: str
    seed: int
    status: str
    done: int
    rounds: int
    last: float | None
    folder: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """A whole report; without sections where there is nothing to report yet."""

    title: str
    about: str
    notices: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    answer: Answer | None = None
    rounds: Grid | None = None
    """The paper's table: arms by round."""
    runs: tuple[RunLine, ...] = ()
    reproduction: Reproduction | None = None
    gallery: Gallery | None = None
    made: str = f"Made by feal {VERSION}."

    @property
    def figures(self) -> list[Shown]:
        """All that are drawn."""
        return [figure for section in self.sections for figure in section.figures if figure.drawing]


def contents(runs: Sequence[Run], *, pictures: bool = False) -> Contents:
    """What there is to say of runs of one experiment, with thumbnails of what was chosen if asked for.

    Raises:
        FealError: the runs do not fit together, or the pictures asked for are out of reach.
    """
    named = arms(runs)
    answered = answer(runs)
    first = runs[0]
    sites = sorted({site for run in runs for site in run.sites})
    drawn = [(FIGURES.get(name).section, _shown(name, runs, pictures=pictures)) for name in FIGURES.names()]
    return Contents(
        title=f"{first.settings.dataset}: {_counted(len(named), 'way')} to choose what is labelled",
        about=f"{_counted(len(runs), 'run')} of {first.task} with {first.settings.model} at "
        f"{_counted(len(sites), 'site')} ({', '.join(sites)})",
        notices=notices(runs),
        sections=tuple(
            Section(
                name=name,
                short=short,
                title=title,
                figures=tuple(figure for section, figure in drawn if section == name),
            )
            for name, (short, title) in SECTIONS.items()
        ),
        answer=answered,
        rounds=round_grid(by_round(arms_of(runs))) if any(run.rounds for run in runs) else None,
        runs=tuple(_line(arm, run) for arm, group in named.items() for run in group),
        reproduction=reproduction(runs),
        gallery=gallery(runs, foremost=[line.arm for line in answered.lines]) if pictures else None,
    )


def _shown(name: str, runs: Sequence[Run], *, pictures: bool) -> Shown:
    figure = FIGURES.get(name)
    known: dict[str, Any] = {"name": name, "title": figure.title, "reading": figure.reading}
    try:
        rows = data_of(figure, runs, pictures=pictures)
    except FealError as error:
        return Shown(**known, drawing=None, why=str(error))
    if not rows:
        return Shown(**known, drawing=None, why=why_missing(figure, runs, pictures=pictures))
    web = figure.web(rows)
    return Shown(**known, drawing=web.to_json(validate=False), height=int(web.layout.height or HEIGHT))


def _line(arm: str, run: Run) -> RunLine:
    metric = primary_metric(run.task)
    return RunLine(
        arm=arm,
        seed=run.settings.seed,
        status=run.status,
        done=len(run.rounds),
        rounds=1 if run.settings.strategy == "full" else run.settings.rounds,
        last=run.rounds[-1]["metrics"].get(metric, {}).get("pooled") if run.rounds else None,
        folder=str(run.path),
    )


def notices(runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader must know before anything else: what is not finished, and what could not be read."""
    waiting = sum(run.status == "waiting" for run in runs)
    unfinished = sum(run.status == "unfinished" for run in runs)
    standing = [
        f"{_counted(count, 'run')} of {len(runs)} {'is' if count == 1 else 'are'} {what}."
        for count, what in ((unfinished, "not finished"), (waiting, "waiting for labels"))
        if count
    ]
    fold = runs[0].settings.validation
    judged = (
        [f"Judged by a validation fold of {fold:.0%} of the training part; the test part rests."] if fold else []
    )
    left_out = runs.left_out if isinstance(runs, Reading) else ()
    return (*standing, *judged, *left_out, *(problem for run in runs for problem in run.problems))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
