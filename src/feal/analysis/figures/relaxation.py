"""What the diversity relaxation does to the choice: candidates passed over, places filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.lines import printed_lines
from feal.analysis.figures.seeds import POOLED, Figures, by_round, share
from feal.analysis.figures.style import site_looks, whom
from feal.analysis.figures.web_lines import web_lines
from feal.analysis.runs import Record, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_TITLES = {"passed over": "Passed over (share of candidates)", "filled in": "Filled in (share of chosen)"}


@FIGURES.register("relaxation", summary="share of candidates that the relaxation rejects, and of places filled in")
class Relaxation:
    """Shares by round and site, of arms whose strategy relaxes."""

    title: ClassVar[str] = "Diversity relaxation"
    reading: ClassVar[str] = (
        "Passed over is the share of the candidates looked at, best score first, that were rejected because near "
        "neighbours of theirs had been chosen in the question after that round. Filled in is the share of the "
        "chosen that were taken by score alone because the others ran out: anything above 0 says that tau or n is "
        "too strict."
    )
    section: ClassVar[str] = "selection"
    needs: ClassVar[str] = "a round after which `feal` chose samples"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, share, site (or all together) and round after which samples were chosen."""
        return by_round([run for run in runs if _relaxes(run)], _shares, within=share)

    @staticmethod
    def web(rows: Rows) -> Web:
        """A panel for each share with a line for each site; a menu chooses the arm, if there are several."""
        return web_lines(_by_site(rows), **_drawing(rows, rows))

    @staticmethod
    def printed(rows: Rows) -> Print:
        """The same of the first arm among the rows."""
        return printed_lines(_by_site(rows), **_drawing(rows, rows[:1]))


def _relaxes(run: Run) -> bool:
    from feal.selection import STRATEGIES

    name = run.settings.strategy
    if name in STRATEGIES.names():
        return "selection.tau" in STRATEGIES.get(name).settings
    return any(site["rejected"] or site["filled"] for record in run.rounds for site in _asked(record).values())


def _asked(record: Record) -> dict[str, Mapping[str, int]]:
    """The sites that were asked something after the round; nobody is after the last."""
    selection = record["diagnostics"].get("selection", {})
    return {site: counts for site, counts in selection.items() if counts["asked"]}


def _shares(record: Record) -> Figures:
    asked = _asked(record)
    found: dict[tuple[str, str], float | None] = {}
    for over, sites in {
        POOLED: list(asked.values()),
        **{site: [counts] for site, counts in asked.items()},
    }.items():
        rejected, filled, chosen = (sum(site[key] for site in sites) for key in ("rejected", "filled", "asked"))
        if chosen:
            looked_at = rejected + chosen - filled
            found["passed over", over] = rejected / looked_at if looked_at else 0.0
            found["filled in", over] = filled / chosen
    return dict(sorted(found.items(), key=lambda entry: entry[0][0], reverse=True))


def _by_site(rows: Rows) -> Rows:
    """The rows with the site as what a line is, and the arm as what a menu chooses."""
    return [{**row, "arm": whom(row["over"]), "series": whom(row["over"]), "over": row["arm"]} for row in rows]


def _drawing(rows: Rows, about: Rows) -> dict[str, Any]:
    drawn = {row["arm"] for row in about}
    return {
        "x": "round",
        "shares": True,
        "tiers": tuple(_TITLES),
        "title": _TITLES.__getitem__,
        "styles": site_looks(row["over"] for row in rows),
        "about": f"{drawn.pop()}. " if len(drawn) == 1 else "",
    }
