"""Read back what a chart draws: values, panels and menus of the JSON that the report carries."""

from typing import Any

from feal.analysis.plots import Chart
from feal.analysis.plots.base import list_panels


def titles(chart: Chart) -> list[Any]:
    """Of the panels: title, or (title, subtitle)."""
    found = [panel.get("title") for panel in list_panels(chart.to_spec())]
    return [
        (entry["text"], entry["subtitle"]) if isinstance(entry, dict) and "subtitle" in entry
        else entry["text"] if isinstance(entry, dict) else entry
        for entry in found
    ]  # fmt: skip


def menus(chart: Chart) -> dict[str, list[str]]:
    """The labels of each menu that has more than one."""
    return {
        param["name"]: param["bind"]["labels"]
        for param in chart.to_spec().get("params", [])
        if isinstance(param.get("bind"), dict)
    }


def drawn(chart: Chart, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of the specification that have these values."""
    spec = chart.to_spec()
    rows = spec["datasets"][spec["data"]["name"]]
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def axis_titles(chart: Chart, channel: str) -> list[str]:
    """Of each panel."""
    return [
        next(
            title
            for layer in panel.get("layer", [panel])
            if (title := _title(layer.get("encoding", {}).get(channel, {})))
        )
        for panel in list_panels(chart.to_spec())
    ]


def _title(encoding: dict[str, Any]) -> Any:
    return encoding.get("title") or (encoding.get("axis") or {}).get("title")
