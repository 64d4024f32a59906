"""How the time and memory of every strategy's choice grow with the pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from feal.selection import STRATEGIES
from handmade import question
from measuring import Measured, afresh, in_megabytes, in_words, measured, table

LABELLED = 500
WIDE = ("feal", "badge", "coreset", "logo", "strata")


def _growing(strategies: Sequence[str], sizes: Sequence[int], width: int, budget: int) -> list[list[Measured]]:
    return [_figures(strategy, sizes, width, budget) for strategy in strategies]


def _figures(strategy: str, sizes: Sequence[int], width: int, budget: int) -> list[Measured]:
    question(strategy, 2000, width, LABELLED).choose(budget)  # whatever libraries allocate once
    figures = []
    for size in sizes:
        asked = question(strategy, size, width, LABELLED)
        figures.append(measured(lambda asked=asked: asked.choose(budget)))  # type: ignore[misc]
        del asked
    return figures


def rows(sizes: Sequence[int], width: int, budget: int) -> Iterator[list[str]]:
    """A row for each strategy: time and extra memory at each size, and how both grow at the last step."""
    head = [cell for size in sizes for cell in (f"{size:,}", "memory")]
    yield ["", *head, "time grew", "memory grew"]
    for strategy, figures in _all_figures(sizes, width, budget):
        cells = [cell for each in figures for cell in (in_words(each.seconds), in_megabytes(each.extra))]
        before, after = figures[-2:]
        growth = [after.seconds / before.seconds, after.extra / max(before.extra, 1)]
        yield [strategy, *cells, *(f"{times:.1f}" for times in growth)]


def _all_figures(sizes: Sequence[int], width: int, budget: int) -> Iterator[tuple[str, list[Measured]]]:
    """Those with wide columns in a process each, and those without in one."""
    without = [name for name in STRATEGIES.names() if name not in WIDE]
    for group in (without, *([name] for name in WIDE)):
        yield from zip(group, afresh(_growing, group, sizes, width, budget), strict=True)


def show(*, quick: bool) -> None:
    """Print the table of growth."""
    width, budget = 128, 50 if quick else 100
    sizes = (2000, 20_000) if quick else (10_000, 100_000, 1_000_000)
    print(f"Growth: {width} features, {LABELLED} labelled, budget {budget}; one call each; memory is extra")
    print(f"From {sizes[-2]:,} to {sizes[-1]:,} samples, {sizes[-1] // sizes[-2]} is linear")
    table(rows(sizes, width, budget))
