"""Reliability: whether predictions are right as often as the model says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.lines import Line, lines, panels, printed_lines
from feal.analysis.figures.seeds import series_of
from feal.analysis.figures.style import FAINT, looks, seeds, unfinished_note
from feal.analysis.figures.web_grid import axis_number
from feal.analysis.figures.web_lines import Hover, web_lines
from feal.analysis.runs import Run, arms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_METRIC = "right predictions"
_NOTE = "Bins of all sites and seeds together; dashed grey: right as often as said."
_LISTED = 8
"""Up to so many series a panel has room for a list of their errors."""


@FIGURES.register("reliability", summary="reliability diagram with the expected calibration error, by round")
class Reliability:
    """Share of right predictions against the probability that the model gave them."""

    title: ClassVar[str] = "Reliability"
    reading: ClassVar[str] = (
        "A point is a bin of test predictions: right as often as its height says, expected to be as its place "
        "from left to right says; below the diagonal a model is too sure of itself, above it not sure enough. "
        "ECE is the expected calibration error, the mean distance to the diagonal over predictions, as mean "
        "over seeds; where there are too many arms to list it, its .csv file has it."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "rounds of runs with a test part, made by this version of feal"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, round (the last one first) and bin that is not empty."""
        rows = [
            {**series_of(arm, group), **row}
            for arm, group in arms(runs).items()
            for number in sorted({record["round"] for run in group for record in run.rounds}, reverse=True)
            for row in _bins(group, number)
        ]
        return sorted(rows, key=lambda row: -row["round"])

    @staticmethod
    def web(rows: Rows) -> Web:
        """Panels by query model; a menu chooses the round."""
        drawn = _drawn(rows)
        figure = web_lines(drawn, x="confidence", title=_title, note=_note(rows), hover=_HOVER)
        for place in range(len(panels(rows))):
            number = axis_number(place)
            diagonal = {"type": "line", "x0": 0, "y0": 0, "x1": 1, "y1": 1, "layer": "below"}
            line = {"color": FAINT, "dash": "dash", "width": 1}
            figure.add_shape(**diagonal, line=line, xref=f"x{number}", yref=f"y{number}")
        figure.update_xaxes(range=[-0.02, 1.02])
        figure.update_yaxes(range=[-0.02, 1.02])
        _list_errors(figure, drawn)
        return figure

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Panels by query model, of the first round among the rows: the last one."""
        drawn = _drawn(rows)
        figure = printed_lines(drawn, x="confidence", title=_title, note=_note(rows))
        for axes, listed in zip(figure.axes, _errors(drawn, drawn[0]["over"]), strict=True):
            axes.plot([0, 1], [0, 1], color=FAINT, linestyle=(0, (3, 2)), linewidth=0.7, zorder=1)
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
            axes.text(
                0.97,
                0.03,
                "\n".join(["ECE", *listed] if listed else []),
                transform=axes.transAxes,
                fontsize=5.5,
                ha="right",
                va="bottom",
                linespacing=1.25,
                bbox={"color": "white", "alpha": 0.7, "pad": 1},
            )
        return figure


def _bins(group: Sequence[Run], number: int) -> Rows:
    records = [record for run in group for record in run.rounds if record["round"] == number]
    kept = [record for record in records if "calibration" in record["diagnostics"]]
    if not kept:
        return []
    errors = [record["metrics"]["calibration_error"]["pooled"] for record in kept]
    columns = [
        [sum(parts) for parts in zip(*(record["diagnostics"]["calibration"][key] for record in kept), strict=True)]
        for key in ("count", "confidence", "correct")
    ]
    return [
        {
            "round": number,
            "bin": place,
            "confidence": confidence / count,
            "value": correct / count,
            "count": count,
            "calibration_error": sum(errors) / len(errors),
            "n": len(kept),
        }
        for place, (count, confidence, correct) in enumerate(zip(*columns, strict=True), start=1)
        if count
    ]


def _drawn(rows: Rows) -> Rows:
    """The rows as lines of which a menu chooses the round; what has one round only stands in each."""
    rounds = list(dict.fromkeys(row["round"] for row in rows))
    shared = {"metric": _METRIC, "low": None, "high": None}
    return [
        {**row, **shared, "strategy": "", "over": f"after round {number}"}
        for number in rounds
        for row in rows
        if row["round"] == number or row["strategy"] == "full"
    ]


def _errors(drawn: Rows, over: str, *, coloured: bool = False) -> list[list[str]]:
    """For each panel the series with their calibration errors, where there is room for them."""
    styles = looks(row["series"] for row in drawn)
    listed: dict[str | None, list[str]] = {panel: [] for panel in panels(drawn)}
    for line in lines([row for row in drawn if row["over"] == over], x="confidence"):
        error = line.points[over][0]["calibration_error"]
        text = f"{line.series} {error:.3f}" if error is not None else line.series
        colour = styles[line.series].colour
        for panel in [line.panel] if line.panel in listed else listed:
            listed[panel].append(f'<span style="color:{colour}">{text}</span>' if coloured else text)
    return [entries if len(entries) <= _LISTED else [] for entries in listed.values()]


def _list_errors(figure: Web, drawn: Rows) -> None:
    """Write the errors into the panels, and let the menu of rounds change them with the points."""
    rounds = list(dict.fromkeys(row["over"] for row in drawn))
    texts = {
        over: ["<br>".join(["ECE", *some] if some else []) for some in _errors(drawn, over, coloured=True)]
        for over in rounds
    }
    first = len(figure.layout.annotations)
    for place, text in enumerate(texts[rounds[0]]):
        number = axis_number(place)
        figure.add_annotation(
            text=text,
            showarrow=False,
            xref=f"x{number} domain",
            yref=f"y{number} domain",
            x=0.98,
            y=0.02,
            xanchor="right",
            yanchor="bottom",
            align="right",
            font={"size": 11},
            bgcolor="rgba(255, 255, 255, 0.75)",
        )
    for menu in figure.layout.updatemenus:
        for button, over in zip(menu.buttons, rounds, strict=True):
            change = {f"annotations[{first + place}].text": text for place, text in enumerate(texts[over])}
            button.update(method="update", args=[button.args[0], change])


def _note(rows: Rows) -> str:
    return " ".join(filter(None, (_NOTE, unfinished_note(rows))))


def _title(metric: str) -> str:
    return f"Share of {metric}"


def _template(line: Line) -> str:
    return (
        f"<b>{line.arm}</b><br>right %{{y:.3f}} of %{{customdata[0]}} predictions<br>with probability %{{x:.3f}}"
        "<br>expected calibration error %{customdata[1]} (%{customdata[2]})"
    )


def _told(row: dict[str, Any]) -> list[Any]:
    error = row["calibration_error"]
    return [row["count"], "none" if error is None else round(error, 4), seeds(row["n"])]


_HOVER = Hover(template=_template, told=_told)
