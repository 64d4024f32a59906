"""`python -m reproduce`: list the paper's tables and figures, show one, or compare runs with it."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from feal.analysis.runs import Over
from feal.analysis.tables import to_csv
from feal.config import load
from feal.errors import FealError
from reproduce.compare import Comparison, Pair, compare_runs
from reproduce.paper import (
    CITATION,
    Entry,
    Published,
    find_entry,
    read_differences,
    read_entries,
    read_published,
    read_sources,
)
from reproduce.tables import comparison_tables, markdown, published_tables, row_labels

README = Path(__file__).parent / "README.md"
GENERATED = "<!-- generated -->\n\n"
SOURCES = ("choice", "the paper says", "its code", "cited code", "ours (default)", "for another")
HEADING = ("name", "what it shows", "published numbers")
MARKS = "Bold and italic: what the paper marks as the best and the second best."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m reproduce", description=__doc__)
    parser.add_argument("name", nargs="?", help="a table or figure, such as table-2; all are listed without it")
    parser.add_argument(
        "--runs", nargs="+", action="extend", type=Path, metavar="DIR", help="run directories, or folders of them"
    )
    parser.add_argument("--over", choices=get_args(Over), default="mean", help="mean of sites, or pooled samples")
    parser.add_argument("--format", choices=("markdown", "csv"), default="markdown")
    parser.add_argument("--readme", action="store_true", help="rewrite README.md")
    options = parser.parse_args(arguments)
    try:
        _print(options, as_csv=options.format == "csv")
    except FealError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def _print(options: argparse.Namespace, *, as_csv: bool) -> None:
    entry = find_entry(options.name) if options.name else None
    if options.readme:
        README.write_text(readme())
    elif entry and options.runs:
        _print_comparison(entry, options.runs, over=options.over, as_csv=as_csv)
    elif options.runs:
        raise FealError("--runs needs the name of a table: `python -m reproduce table-2 --runs DIR`.")
    elif as_csv:
        rows = entry.published if entry else read_published()
        print(to_csv([row.model_dump() for row in rows]), end="")
    elif entry:
        _print_entry(entry)
    else:
        _print_list()


def readme() -> str:
    """Return README.md: its introduction, then every table and figure with its commands."""
    listed = [(f"[{name}](#{name})", *facts) for name, *facts in _overview()]
    parts = [README.read_text().partition(GENERATED)[0] + GENERATED, markdown(HEADING, listed)]
    sources = [tuple(source.model_dump().values()) for source in read_sources()]
    parts += ["\n## What the paper, its code and cited code do, and what we do\n", markdown(SOURCES, sources)]
    parts += ["\nSettings are for a preset's command line; a cell is empty where nothing is known or needed."]
    parts += ["\n## How our settings and data differ from the authors'\n"]
    parts += [f"- **{key}**: {text}" for key, text in read_differences().items()]
    for entry in read_entries().values():
        parts += ["", f"## {entry.name}", "", *_describe(entry)]
        parts += [f"Differences: {', '.join(entry.differences)}."] * bool(entry.differences)
        parts += _commands(entry)
    return "\n".join(parts) + "\n"


def _print_list() -> None:
    print(markdown(HEADING, list(_overview())))
    print(f"\nOf {CITATION}, and its supplement. `python -m reproduce NAME` shows numbers and commands.")


def _print_entry(entry: Entry) -> None:
    rows = entry.published
    print(f"## {entry.name}", "", *_describe(entry), sep="\n")
    if rows:
        unit = "Percentages, three seeds. " if any(row.round for row in rows) else ""
        notes = [f"{unit}Source: {CITATION}, {entry.numbers_of or entry.name}."]
        notes += [MARKS] * any(row.mark for row in rows)
        notes += ["", *(f"- {preset}: {_settings_of(preset)}" for preset in entry.presets)]
        print("", published_tables(rows), "", *notes, sep="\n")
    print(*_commands(entry), sep="\n")
    if entry.differences:
        print("\nDifferences from the authors' settings and data:\n")
        print(*(f"- {read_differences()[key]}" for key in entry.differences), sep="\n")


def _print_comparison(entry: Entry, places: Sequence[Path], *, over: Over, as_csv: bool) -> None:
    comparison = compare_runs(entry, places, over=over)
    notes = list(_notes(entry, comparison, over=over))
    if as_csv:
        print(to_csv([_csv_row(pair) for pair in comparison.pairs]), end="")
        print(*notes, sep="\n", file=sys.stderr)
        return
    print(f"## {entry.name}", "", f"{entry.shows}.", "", comparison_tables(comparison.pairs), "", *notes, sep="\n")


def _overview() -> Iterator[tuple[str, str, str]]:
    for entry in read_entries().values():
        yield entry.name, entry.shows, str(len(entry.published) or "none")


def _describe(entry: Entry) -> Iterator[str]:
    yield f"{entry.shows} (section {entry.section})."
    if entry.numbers_of:
        yield f"Published numbers: those of [{entry.numbers_of}](#{entry.numbers_of})."
    if entry.not_printed:
        yield f"Not printed in the paper: {entry.not_printed}."
    if entry.text:
        yield entry.text


def _commands(entry: Entry) -> list[str]:
    return ["", "```", *entry.commands(), "```"] if entry.commands() else []


def _settings_of(preset: str) -> str:
    settings = load(preset)
    training, strategy = settings.training, settings.strategy.params
    lambda_ = settings.loss.params["lambda"] if settings.loss else 0.0
    return (
        f"model {settings.model.name}, budget {settings.budget}, "
        f"communication_rounds {settings.communication_rounds}, "
        f"lambda {lambda_:g}, n {strategy['n']}, tau {strategy['tau']:g}, lr {training.lr:g}, "
        f"weight_decay {training.weight_decay:g}, batch_size {training.batch_size}"
    )


def _csv_row(pair: Pair) -> Mapping[str, Any]:
    row, ours = pair.published, pair.ours
    return {
        **row.model_dump(include={"preset", "metric", "strategy", "query_model", "changes", "round"}),
        "paper": row.value,
        "paper_sd": row.sd,
        "ours": ours.mean if ours else None,
        "ours_sd": ours.sd if ours else None,
        "difference": ours.mean - row.value if ours else None,
        "seeds": ours.seeds if ours else 0,
        "other_settings": " ".join(f"{key}={value}" for key, (value, _) in pair.match.differences.items()),
    }


def _notes(entry: Entry, comparison: Comparison, *, over: Over) -> Iterator[str]:
    """Explain the numbers, then the settings that differ, unfinished and unusable runs, and missing rows."""
    pairs = comparison.pairs
    rows = [pair.published for pair in pairs]
    kind = "mean over sites" if over == "mean" else "all sites' test samples together"
    if any(row.metric != "seconds" for row in rows):
        yield f"Ours: {kind}, percentages, mean ± standard deviation over seeds. The paper: {CITATION}."
    if any(row.round is None and row.metric != "seconds" for row in entry.published):
        yield "The paper does not state the round of its number, so it is compared with each of our rounds."
    yield from _different_settings(pairs)
    for arm in {(pair.published.preset, pair.match.arm.name): pair.match.arm for pair in pairs}.values():
        yield from arm.remarks()
    yield from (f"Left out: {sentence}" for sentence in comparison.left_out)
    absent: dict[str, dict[str, None]] = {}
    for row in comparison.missing:
        absent.setdefault(row.preset, {})[_name(row)] = None
    for preset, names in absent.items():
        yield f"No run of {preset} for: {'; '.join(names)}."


def _different_settings(pairs: Sequence[Pair]) -> Iterator[str]:
    """Name each setting that differs from the paper's, with the rows it concerns."""
    rows: dict[str, dict[str, None]] = {}
    for pair in pairs:
        for key, (ours, wanted) in pair.match.differences.items():
            name = f"{pair.published.preset} {_name(pair.published)}"
            rows.setdefault(f"{key.removesuffix('.name')} is {ours} instead of {wanted}", {})[name] = None
    everything = {f"{pair.published.preset} {_name(pair.published)}": None for pair in pairs}
    for difference, names in rows.items():
        where = "all rows" if names == everything else "; ".join(names)
        yield f"Not the paper's settings: {difference} ({where})."
    if not rows:
        yield "All runs have the paper's settings."


def _name(row: Published) -> str:
    return " ".join(filter(None, row_labels(row)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly in `| head`
    sys.exit(main())
