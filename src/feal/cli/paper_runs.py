"""`feal paper NAME --runs DIR`: our runs beside the paper's numbers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feal.analysis.arms import arms_of
from feal.analysis.beside import Match, Ours, check_same_set, match, ours
from feal.analysis.curves import Over
from feal.analysis.grids import Entry as Word
from feal.analysis.grids import Grid
from feal.analysis.runs import Reading, Run, find_runs, read_runs
from feal.analysis.tables import table_text
from feal.cli.grids import wide_console
from feal.cli.paper import TERMS, Format, paragraph, show_grids
from feal.cli.paper_grids import Cell, arrange, block, column, label, number
from feal.cli.tables import say
from feal.config import load
from feal.config.paper import Published
from feal.config.paper_map import CITATION, Entry, entry_named
from feal.errors import FealError
from feal.experiment.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A published number, the arm that stands for it, and its figure."""

    theirs: Published
    match: Match
    figure: Ours | None
    round_unsaid: bool


def show_beside(name: str, places: Sequence[Path], *, over: Over, format: Format) -> None:
    """Print ours beside theirs, the settings in which our runs are not the table's, and what is missing.

    Raises:
        FealError: nothing to compare with, or runs of another preset.
    """
    entry = entry_named(name)
    rows = entry.published()
    if not entry.comparable():
        raise FealError(_nothing_to_compare(entry))
    runs, left_out = _by_preset(entry, places)
    if not runs:
        raise FealError(left_out[0].removesuffix(" It is left out."))
    pairs, missing = _pairs(rows, runs, over)
    if not pairs:
        raise FealError(f"None of the runs is of a row of {name}: `feal paper {name}` shows the commands.")
    remarks = [*left_out, *_remarks(pairs, missing, over=over)]
    if format == "csv":
        sys.stdout.write(table_text([_tidy(pair) for pair in pairs]))
        sys.stderr.write("".join(f"{remark}\n" for remark in remarks))
        return
    console = wide_console()
    say(console, f"{entry.title}: {entry.shows}\n", style="bold" if format == "table" else None)
    grids = arrange((cell for pair in pairs for cell in _cells(pair)), labels=("row", ""))
    show_grids(console, [_without_repeats(grid) for grid in grids], format=format)
    for sentence in remarks:
        paragraph(console, sentence)


def _nothing_to_compare(entry: Entry) -> str:
    if entry.published():
        return f"{entry.name} has sizes of data sets, which are no run's: `feal paper {entry.name}` shows them."
    look = f": look at it by `feal paper {entry.name}`" if entry.commands() else ""
    return f"The paper prints no numbers of {entry.name} to hold runs against{look}."


def _by_preset(entry: Entry, places: Sequence[Path]) -> tuple[dict[str, Reading], list[str]]:
    """Runs by the preset whose data set they are of, each checked for being of it; and what cannot be used."""
    wanted = {preset: load(preset) for preset in entry.presets}
    presets = {settings.dataset: preset for preset, settings in wanted.items()}
    paths: dict[str, list[Path]] = {}
    left_out: list[str] = []
    for path in find_runs(places):
        try:
            dataset = RunFolder(path).read_config().get("dataset")
        except FealError as error:
            left_out.append(f"{error} It is left out.")
            continue
        if dataset not in presets:
            raise FealError(
                f"{path} is a run on {dataset}, and {entry.name} is about {', '.join(entry.presets)}: "
                "give runs of these only."
            )
        paths.setdefault(presets[dataset], []).append(path)
    found = {preset: read_runs(members) for preset, members in paths.items()}
    for preset, runs in found.items():
        for run in runs:
            check_same_set(run, wanted[preset], preset=preset, about=entry.name)
    return found, [*left_out, *(sentence for reading in found.values() for sentence in reading.left_out)]


def _pairs(
    rows: Sequence[Published], runs: Mapping[str, Sequence[Run]], over: Over
) -> tuple[list[Pair], list[Published]]:
    """Numbers with the arms that stand for them, and those of presets at hand that no arm stands for."""
    groups = {preset: arms_of(members) for preset, members in runs.items()}
    told_by = {key for row in rows for key in row.overrides} | {"strategy", "query_model"}
    found: dict[tuple[str, ...], Match | None] = {}
    pairs, missing = [], []
    for row in rows:
        if row.preset not in groups:
            continue
        key = (row.preset, *label(row))
        if key not in found:
            found[key] = match(load(row.preset, row.overrides), groups[row.preset], told_by=told_by)
        one = found[key]
        if one is None:
            missing.append(row)
            continue
        for theirs in _at_rounds(row, one.arm.counted):
            figure = ours(one.arm, figure=theirs.figure, round=theirs.round, over=over)
            pairs.append(Pair(theirs=theirs, match=one, figure=figure, round_unsaid=theirs.round != row.round))
    return pairs, missing


def _at_rounds(row: Published, runs: Sequence[Run]) -> list[Published]:
    """A figure whose round the text does not say stands beside every round of ours."""
    if row.round is not None or row.figure == "seconds":
        return [row]
    return [replace(row, round=record["round"]) for record in max((run.rounds for run in runs), key=len)]


def _cells(pair: Pair) -> Iterator[Cell]:
    theirs, figure = pair.theirs, pair.figure
    texts = {"paper": number(theirs)}
    if figure is None:
        texts["ours"] = "-"
    else:
        sd = "" if figure.sd is None else f" ± {figure.sd:.2f}"
        texts |= {
            "ours": f"{figure.mean:.2f}{sd}",
            "diff.": f"{figure.mean - theirs.value:+.2f}",
            "seeds": str(figure.seeds),
        }
    for line, text in texts.items():
        yield Cell(block=block(theirs), label=(_row(theirs), line), column=column(theirs), text=text)


def _without_repeats(grid: Grid) -> Grid:
    """The grid with a row's name on its first line only."""
    rows, above = [], None
    for row in grid.rows:
        name = row[0].text
        rows.append((Word("" if name == above else name), *row[1:]))
        above = name
    return replace(grid, rows=tuple(rows))


def _row(theirs: Published) -> str:
    return " ".join(filter(None, label(theirs)))


def _tidy(pair: Pair) -> dict[str, Any]:
    theirs, figure = pair.theirs, pair.figure
    return {
        "preset": theirs.preset,
        "figure": theirs.figure,
        "strategy": theirs.strategy,
        "query_model": theirs.query_model,
        "changes": theirs.changes,
        "round": theirs.round,
        "paper": theirs.value,
        "paper_sd": theirs.sd,
        "ours": figure.mean if figure else None,
        "ours_sd": figure.sd if figure else None,
        "difference": figure.mean - theirs.value if figure else None,
        "seeds": figure.seeds if figure else 0,
        "unlike": " ".join(f"{key}={value}" for key, (value, _) in pair.match.unlike.items()),
    }


def _remarks(pairs: Sequence[Pair], missing: Sequence[Published], *, over: Over) -> Iterator[str]:
    kind = "mean over sites" if over == "mean" else "all sites' test samples together"
    if any(pair.theirs.figure != "seconds" for pair in pairs):
        yield f"Ours: {kind}, in per cent, mean ± standard deviation over seeds; theirs as printed in {CITATION}."
    if any(pair.round_unsaid for pair in pairs):
        yield "The paper does not say which round its figure is of, so it stands beside every one of ours."
    if any("selection.terms" in pair.theirs.changes for pair in pairs):
        yield TERMS
    yield from _unlike(pairs)
    for arm in {(pair.theirs.preset, pair.match.arm.name): pair.match.arm for pair in pairs}.values():
        yield from arm.remarks()
    absent: dict[str, dict[str, None]] = {}
    for row in missing:
        absent.setdefault(row.preset, {})[_row(row)] = None
    for preset, rows in absent.items():
        yield f"No run of {preset} for: {'; '.join(rows)}."


def _unlike(pairs: Sequence[Pair]) -> Iterator[str]:
    """A sentence for each difference of settings, with the rows that it is of."""
    rows: dict[str, dict[str, None]] = {}
    for pair in pairs:
        for key, (own, wanted) in pair.match.unlike.items():
            named = f"{pair.theirs.preset} {_row(pair.theirs)}"
            rows.setdefault(f"{key} is {own} instead of {wanted}", {})[named] = None
    everything = {f"{pair.theirs.preset} {_row(pair.theirs)}": None for pair in pairs}
    for difference, named_rows in rows.items():
        where = "all rows" if named_rows == everything else "; ".join(named_rows)
        yield f"Not the table's settings: {difference} ({where})."
    if not rows:
        yield "The runs' settings are the table's."
