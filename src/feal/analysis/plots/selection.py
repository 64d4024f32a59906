"""What was selected: the effect of the diversity relaxation, and labels found of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.analysis.outputs import count_found_labels
from feal.analysis.plots.base import PLOTS, Chart, Menu, PlotRows, fade
from feal.analysis.plots.lines import draw_lines, style_sites
from feal.analysis.plots.series import (
    POOLED,
    SHARE,
    RoundMetrics,
    aggregate_rounds,
    count_seeds,
    describe_arm,
    describe_scope,
    estimate_mean,
    note_unfinished,
)
from feal.analysis.plots.theme import DASHES, FAINT, GRID, style_series
from feal.analysis.runs import Run, group_by_arm
from feal.rundir.records import Round, SiteSelection

_SHARES = {"passed over": "Passed over (share of candidates)", "filled in": "Filled in (share of selected)"}

Found = Mapping[int, NDArray[np.float64]]
"""Labels of each class that a run selected, [classes], by seed."""


@PLOTS.register("relaxation", summary="share of candidates that the relaxation rejects, and of places filled in")
class Relaxation:
    """Shares by round and site, of arms whose strategy relaxes."""

    title: ClassVar[str] = "Diversity relaxation"
    reading: ClassVar[str] = (
        "Passed over: the share of candidates, best score first, that were rejected because near neighbours "
        "were already selected after that round. Filled in: the share of selected samples that were taken by "
        "score alone because no other candidates were left; anything above 0 means that tau or n is too "
        "strict."
    )
    section: ClassVar[str] = "selection"
    needs: ClassVar[str] = "a round after which `feal` selected samples"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, share, site (or all together) and round after which samples were selected."""
        relaxing = [run for run in runs if _relaxes(run)]
        return aggregate_rounds(relaxing, _relaxation_shares, within=lambda _: SHARE)

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw a panel for each share with a line for each site, and a menu of arms."""
        arms = {row["arm"] for row in rows}
        lines = [
            {**row, "series": describe_scope(row["over"]), "arm": describe_scope(row["over"]), "over": row["arm"]}
            for row in rows
        ]
        return draw_lines(
            [{**row, "query_model": None} for row in lines],
            x="round",
            tiers=tuple(_SHARES),
            title=_SHARES.__getitem__,
            styles=style_sites([row["over"] for row in rows]),
            scopes=str,
            scope_label="Strategy",
            about=f"{arms.pop()}. " if len(arms) == 1 else "",
            from_zero=True,
        )


def _relaxes(run: Run) -> bool:
    from feal.selection import STRATEGIES

    name = run.settings.strategy.name
    if name in STRATEGIES.names():
        return "tau" in STRATEGIES.get(name).Params.model_fields
    return any(site.rejected or site.filled for record in run.rounds for site in _queried(record).values())


def _queried(record: Round) -> dict[str, SiteSelection]:
    """Return the counts of the sites that were queried after the round; none is after the last."""
    return {site: counts for site, counts in record.diagnostics.selection.items() if counts.asked}


def _relaxation_shares(record: Round) -> RoundMetrics:
    queried = _queried(record)
    found: dict[tuple[str, str], float | None] = {}
    for over, sites in {
        POOLED: list(queried.values()),
        **{site: [counts] for site, counts in queried.items()},
    }.items():
        rejected, filled, selected = (
            sum(getattr(site, key) for site in sites) for key in ("rejected", "filled", "asked")
        )
        if selected:
            candidates = rejected + selected - filled
            found["passed over", over] = rejected / candidates if candidates else 0.0
            found["filled in", over] = filled / selected
    return dict(sorted(found.items(), key=lambda entry: entry[0][0], reverse=True))


@PLOTS.register("yield", summary="labels found of each class, relative to random; rare classes on top")
class ClassYield:
    """Selected labels (segmentation: pixels), without those that every run starts with."""

    title: ClassVar[str] = "Class yield"
    reading: ClassVar[str] = (
        "A symbol is a strategy: how many labels of a class it has found since the first round, as a multiple "
        "of what random found with the same seeds; right of the line at 1 it finds more. The rarest classes "
        "are on top, each with the mean number that random found: small numbers vary much by chance."
    )
    section: ClassVar[str] = "selection"
    needs: ClassVar[str] = "at least two rounds of runs with their sites' directories"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, round from the second on (the last one first) and class, the rarest first."""
        groups = group_by_arm(runs)
        found = {
            arm: _count_labels(group) for arm, group in groups.items() if group[0].settings.strategy.name != "full"
        }
        rounds = sorted({number for by_round in found.values() for number in by_round}, reverse=True)
        random = next((arm for arm in found if groups[arm][0].settings.strategy.name == "random"), None)
        return [
            row
            for number in rounds
            for arm, by_round in found.items()
            for row in _yield_rows(
                {
                    **describe_arm(arm, groups[arm]),
                    "unit": "pixels" if groups[arm][0].task == "segmentation" else "labels",
                },
                number,
                by_round.get(number, {}),
                found[random].get(number, {}) if random is not None else {},
                classes=_rarest_first(found, random, groups[arm][0].classes),
            )
        ]

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw symbols by class, with a menu of rounds."""
        import altair as alt

        is_relative = any(row["ratio"] is not None for row in rows)
        drawn = _drawn(rows, is_relative=is_relative)
        styles = style_series(row["arm"] for row in drawn)
        classes = list(dict.fromkeys(row["line"] for row in drawn))
        unit = rows[0]["unit"]
        title = f"{unit.capitalize()} found (random = 1)" if is_relative else f"Share of the {unit} found"
        names, height = list(styles), len(classes) * max(30, 10 * len(styles))
        colours = alt.Scale(domain=names, range=[style.colour for style in styles.values()])
        shapes = alt.Scale(domain=names, range=[style.shape for style in styles.values()])
        symbols = (
            alt.Chart()
            .transform_filter("datum.round === round && datum.x !== null")
            .mark_point(size=60)
            .encode(
                x=alt.X("x:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
                y=alt.Y(
                    "line:N",
                    title=None,
                    sort=classes,
                    scale=alt.Scale(domain=classes, padding=0),
                    axis=alt.Axis(
                        ticks=False, domain=False, labelLimit=130, grid=True, bandPosition=0, gridColor=GRID
                    ),
                ),
                yOffset=alt.YOffset("arm:N", scale=alt.Scale(domain=names, padding=0.75)),
                color=alt.Color("arm:N", title=None, scale=colours),
                shape=alt.Shape("arm:N", title=None, scale=shapes),
                opacity=fade(),
                tooltip=[
                    alt.Tooltip("arm:N", title="Strategy"),
                    alt.Tooltip("class:N", title="Class"),
                    alt.Tooltip("count:N", title=f"{unit.capitalize()} since round 1"),
                    alt.Tooltip("share:Q", title="Share of its own", format=".1%"),
                    alt.Tooltip("random:N", title="Random"),
                    alt.Tooltip("ratio:Q", title="Relative to random", format=".2f"),
                    alt.Tooltip("seeds:N", title="Seeds"),
                ],
            )
        )
        line = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=FAINT, strokeDash=DASHES["dashed"])
        layers = [*([line.encode(x=alt.datum(1.0))] if is_relative else []), symbols]
        return Chart(
            rows=drawn,
            tiers=[[alt.layer(*layers).properties(height=height)]],
            highlight="arm",
            menus=[
                Menu(
                    name="round",
                    label="Round",
                    options={row["round"]: row["round"] for row in drawn},
                )
            ],
            legend=names,
            note=note_unfinished(rows),
            margin=min(150, 24 + 7 * max(map(len, classes))),
        )


def _count_labels(group: Sequence[Run]) -> dict[int, dict[int, NDArray[np.float64]]]:
    """Return the labels by class that were selected after the first round, by round and seed."""
    found: dict[int, dict[int, NDArray[np.float64]]] = {}
    for run in group:
        counts = count_found_labels(run)
        for record, so_far in zip(run.rounds[1:], counts[1:] - counts[:1], strict=True):
            if so_far.sum():
                found.setdefault(record.round, {})[run.settings.seed] = so_far
    return found


def _rarest_first(
    found: Mapping[str, Mapping[int, Found]], random: str | None, classes: Sequence[str]
) -> list[tuple[int, str]]:
    """Return classes with their index, by what random found in its last round, or else all arms together."""
    arms = [found[random]] if random is not None else list(found.values())
    total = sum(
        (counts for by_round in arms if by_round for counts in by_round[max(by_round)].values()),
        start=np.zeros(len(classes)),
    )
    return sorted(enumerate(classes), key=lambda entry: total[entry[0]])


def _yield_rows(
    arm: dict[str, Any], number: int, own: Found, random: Found, *, classes: Sequence[tuple[int, str]]
) -> PlotRows:
    both = own.keys() & random.keys()
    rows = []
    for place, name in classes if own else ():
        theirs = sum(random[seed][place] for seed in both)
        ours = sum(own[seed][place] for seed in both)
        rows.append(
            {
                **arm,
                "round": number,
                "class": name,
                **estimate_mean((float(counts[place]) for counts in own.values()), within=(0.0, np.inf)),
                "share": float(np.mean([counts[place] / counts.sum() for counts in own.values()])),
                "random": float(theirs) / len(both) if both else None,
                "ratio": float(ours / theirs) if theirs else None,
            }
        )
    return rows


def _drawn(rows: PlotRows, *, is_relative: bool) -> PlotRows:
    """Return the symbols: relative to random if it is there, else shares of all labels."""
    labels = {row["class"]: row["class"] for row in rows}
    for row in reversed(rows if is_relative else []):
        if row["random"] is not None:
            labels[row["class"]] = f"{row['class']} ({format_count(row['random'])})"
    return [
        {
            "arm": row["arm"],
            "class": row["class"],
            "line": labels[row["class"]],
            "x": row["ratio"] if is_relative else row["share"],
            "round": f"after round {row['round']}",
            "count": _format_interval(row),
            "share": row["share"],
            "random": "none" if row["random"] is None else format_count(row["random"]),
            "ratio": row["ratio"],
            "seeds": count_seeds(row["n"]),
        }
        for row in rows
        if not is_relative or row["strategy"] != "random"
    ]


def format_count(number: float) -> str:
    """Format a mean count, with a decimal where that matters.

    >>> format_count(24680.4), format_count(3.25), format_count(7.0)
    ('24,680', '3.2', '7')
    """
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def _format_interval(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return format_count(row["value"])
    interval = f"{format_count(row['low'])} to {format_count(row['high'])}"
    return f"{format_count(row['value'])} (95 % interval {interval})"
