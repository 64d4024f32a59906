"""The choice of strategies from observed columns against a plain form and a bound, and growing with the pool."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from columns import Question, make_question
from feal.selection import STRATEGIES
from feal.selection.kmeans import DEFAULT_ITERATIONS, OuterProducts, k_means_plus_plus
from feal.selection.strategies.strata import ITERATIONS
from timing import (
    Measurement,
    format_megabytes,
    format_seconds,
    measure,
    median_seconds,
    print_table,
    run_in_fresh_process,
)

TRIED = 3  # picks on which the plain forms of badge and coreset are timed
LABELLED = 500
PLAIN = 10_000  # samples up to which the plain forms are timed: formed gradients of more take gigabytes
PRODUCT = "[N, D] @ [D, budget]"
COVERING = ("maxherding", "uherding", "rarity-herding", "typiclust", "probcover", "dropquery", "mixed")
WIDE = ("feal", "badge", "coreset", "logo", "strata", *COVERING)  # strategies with wide columns
Side = Literal["choose", "plain"]


class Forms(NamedTuple):
    """One choice in three ways."""

    choose: Callable[[], object]
    plain: Callable[[int], object]
    """Timed with 0 and with TRIED picks, and scaled, where `scaled` says so."""
    bound: Callable[[], object]
    scaled: bool
    plain_name: str
    bound_name: str


def build_forms(strategy: str, size: int, width: int, budget: int) -> Forms:
    """Build the forms of a strategy on a pool of that size."""
    asked = make_question(strategy, size, width, LABELLED)
    if strategy == "badge":
        return _badge(asked, budget)
    if strategy == "coreset":
        return _coreset(asked, budget)
    column, iterations = {"logo": ("embedding", DEFAULT_ITERATIONS), "strata": ("deep", ITERATIONS)}[strategy]
    return _clusters(asked, column, iterations, budget)


def _badge(asked: Question, budget: int) -> Forms:
    q, h = asked.pool["residual_global"], asked.pool["features_global"]

    def plain(picks: int) -> None:
        gradients = (q[:, :, None] * h[:, None]).flatten(1)
        row = int(torch.linalg.vector_norm(gradients, dim=1).argmax())
        nearest = torch.full((len(gradients),), torch.inf)
        draw = torch.Generator().manual_seed(0)
        for _ in range(picks):
            torch.minimum(nearest, (gradients - gradients[row]).square_().sum(1), out=nearest)
            row = int(torch.multinomial(nearest, 1, generator=draw))

    bound = partial(_multiply, h, budget)
    return Forms(lambda: asked.choose(budget), plain, bound, True, "G formed, loop *", PRODUCT)


def _coreset(asked: Question, budget: int) -> Forms:
    features = asked.pool["features"]
    known = asked.labelled["features"] if asked.labelled else features[:0]

    def plain(picks: int) -> None:
        # From the first pick to the last the centres grow by one each: these are spread evenly between.
        for pick in range(picks):
            centres = torch.cat([known, features[: budget * (2 * pick + 1) // (2 * picks)]])
            int(torch.cdist(features, centres).amin(1).argmax())

    bound = partial(_multiply, features, budget)
    return Forms(lambda: asked.choose(budget), plain, bound, True, "all distances anew *", PRODUCT)


def _clusters(asked: Question, column: str, iterations: int, budget: int) -> Forms:
    # Fresh processes that do not cluster need not wait for it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    points = asked.pool[column]
    rows = OuterProducts([(torch.ones(len(points), 1), points)])
    draw = torch.Generator().manual_seed(0)
    starts = points[k_means_plus_plus(rows, budget, draw, first=0)[0]]

    def lloyd(start: str | Tensor) -> None:
        init = start if isinstance(start, str) else start.numpy()
        kmeans = KMeans(
            budget, init=init, n_init=1, max_iter=iterations, algorithm="lloyd", copy_x=True, random_state=0
        )
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(points.numpy())

    return Forms(
        lambda: asked.choose(budget),
        lambda _: lloyd("k-means++"),
        lambda: lloyd(starts),
        False,
        "scikit-learn's start",
        "its iterations alone",
    )


def _multiply(features: Tensor, count: int) -> Tensor:
    return features @ features[:count].T


def _measure_side(strategy: str, size: int, width: int, budget: int, side: Side) -> Measurement:
    small = build_forms(strategy, 1000, width, min(budget, 100))
    small.choose()  # whatever libraries allocate once
    small.plain(1)
    given = build_forms(strategy, size, width, budget)
    return measure(given.choose if side == "choose" else lambda: given.plain(1))


def choice_rows(
    strategies: Sequence[str], size: int, width: int, budget: int, repeats: int
) -> Iterator[list[str]]:
    """Yield a row for each strategy."""
    yield ["", "choice", "memory", "plain form", "", "memory", "over ours", "bound", "", "ours over it"]
    for strategy in strategies:
        build_forms(strategy, 1000, width, 100).choose()
        given = build_forms(strategy, size, width, budget)
        seconds = median_seconds({"choose": given.choose, "bound": given.bound}, repeats)
        ours = run_in_fresh_process(_measure_side, strategy, size, width, budget, "choose")
        yield [
            strategy,
            format_seconds(seconds["choose"]),
            format_megabytes(ours.extra),
            *(_plain_cells(strategy, given, size, width, budget, seconds["choose"]) if size <= PLAIN else "-" * 4),
            given.bound_name,
            format_seconds(seconds["bound"]),
            f"{seconds['choose'] / seconds['bound']:.2f}",
        ]


def _plain_cells(strategy: str, given: Forms, size: int, width: int, budget: int, ours: float) -> list[str]:
    plain = run_in_fresh_process(_measure_side, strategy, size, width, budget, "plain")
    seconds = _scaled_seconds(given, budget) if given.scaled else plain.seconds
    return [given.plain_name, format_seconds(seconds), format_megabytes(plain.extra), f"{seconds / ours:,.1f}"]


def _scaled_seconds(given: Forms, budget: int) -> float:
    seconds = median_seconds({"none": lambda: given.plain(0), "some": lambda: given.plain(TRIED)}, 3)
    return seconds["none"] + (seconds["some"] - seconds["none"]) / TRIED * budget


def show_choice(*, quick: bool) -> None:
    """Print the tables of choices."""
    width, budget, repeats = (320, 100, 3) if quick else (1280, 500, 3)
    for size in (10_000, 100_000):
        print(
            f"Choosing: {size:,} samples of {width:,} features, {LABELLED} labelled, budget {budget}; extra memory"
        )
        strategies = ("badge", "coreset", "logo", "strata") if size == 10_000 else ("badge", "coreset")
        print_table(choice_rows(strategies, size, width, budget, repeats))
    print(f"* timed on {TRIED} picks and scaled to all; coreset also compares all with the labelled ones\n")


def _measure_growth(
    strategies: Sequence[str], sizes: Sequence[int], width: int, budget: int
) -> list[list[Measurement]]:
    return [_measure_sizes(strategy, sizes, width, budget) for strategy in strategies]


def _measure_sizes(strategy: str, sizes: Sequence[int], width: int, budget: int) -> list[Measurement]:
    make_question(strategy, 2000, width, LABELLED).choose(budget)  # whatever libraries allocate once
    measurements = []
    for size in sizes:
        asked = make_question(strategy, size, width, LABELLED)
        measurements.append(measure(lambda asked=asked: asked.choose(budget)))  # type: ignore[misc]
        del asked
    return measurements


def growth_rows(sizes: Sequence[int], width: int, budget: int) -> Iterator[list[str]]:
    """Yield a row for each strategy: time and extra memory at each size, and how both grow at the last step."""
    head = [cell for size in sizes for cell in (f"{size:,}", "memory")]
    yield ["", *head, "time grew", "memory grew"]
    for strategy, measurements in _measure_all(sizes, width, budget):
        cells = [
            cell for each in measurements for cell in (format_seconds(each.seconds), format_megabytes(each.extra))
        ]
        before, after = measurements[-2:]
        growth = [after.seconds / before.seconds, after.extra / max(before.extra, 1)]
        yield [strategy, *cells, *(f"{times:.1f}" for times in growth)]


def show_coverage(*, quick: bool) -> None:
    """Print the table of strategies that cover a pool, which must stay below 60 s and 2 GiB."""
    sizes, width, budget = ((2000, 20_000), 64, 50) if quick else ((10_000, 100_000), 256, 500)
    print(f"Coverage: {width} features, {LABELLED} labelled, budget {budget}; one call each; memory is extra")
    head = [cell for size in sizes for cell in (f"{size:,}", "memory", "whole process")]
    rows = [["", *head]]
    for strategy in COVERING:
        cells = [run_in_fresh_process(_measure_sizes, strategy, [size], width, budget)[0] for size in sizes]
        rows.append(
            [
                strategy,
                *(
                    cell
                    for each in cells
                    for cell in (
                        format_seconds(each.seconds),
                        format_megabytes(each.extra),
                        format_megabytes(each.peak),
                    )
                ),
            ]
        )
    print_table(rows)


def _measure_all(sizes: Sequence[int], width: int, budget: int) -> Iterator[tuple[str, list[Measurement]]]:
    """Measure strategies with wide columns in a process each, and the others in one."""
    without = [name for name in STRATEGIES.names() if name not in WIDE]
    for group in (without, *([name] for name in WIDE)):
        yield from zip(group, run_in_fresh_process(_measure_growth, group, sizes, width, budget), strict=True)


def show_growth(*, quick: bool) -> None:
    """Print the table of growth."""
    width, budget = 128, 50 if quick else 100
    sizes = (2000, 20_000) if quick else (10_000, 100_000, 1_000_000)
    print(f"Growth: {width} features, {LABELLED} labelled, budget {budget}; one call each; memory is extra")
    print(f"From {sizes[-2]:,} to {sizes[-1]:,} samples, {sizes[-1] // sizes[-2]} is linear")
    print_table(growth_rows(sizes, width, budget))
