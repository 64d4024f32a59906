"""Print docs/settings.md: every setting and parameter with its default, from the schema itself.

`python docs/tools/settings_page.py > docs/settings.md` updates the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from pydantic import BaseModel

from feal.config.overrides import COMPONENTS, METRIC, RENAMED
from feal.metrics import METRICS
from feal.settings import OPERATIONAL, Component, Section, Settings

INTRODUCTION = """# Settings

Every setting of an experiment, as `config.yaml` and presets have them, on the command line
`feal run demo KEY=VALUE ...`. This page is generated from the schema (`python docs/tools/settings_page.py`).

A strategy, a loss, a network, a data set, an annotator and a transport have parameters of their own:
`strategy: {name: feal, tau: 0.9}` in a file, `strategy=feal strategy.tau=0.9` on the command line,
`strategy={"name": "feal", "tau": 0.9}` in Python. A class of your own is named as `file.py:Class` and has the
parameters of its `Params`. Parameters of metrics are below the metric's name: `metric.hd95.rule=pooled`.
"""


def settings_page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, "## General\n", _table(_rows(Settings))]
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section) and name not in COMPONENTS:
            parts += [f"## `{name}`\n", _table(_rows(field.annotation, prefix=f"{name}."))]
    for kind, found in COMPONENTS.items():
        parts.append(f"## `{kind}`\n")
        for name in found.registry.names():
            params = getattr(found.registry.get(name), "Params", None)
            rows = list(_rows(params, prefix=f"{kind}.")) if params is not None else []
            parts.append(f"`{kind}={name}`: {found.registry.summary(name)}\n")
            parts += [_table(iter(rows))] if rows else []
    parts.append(f"## `{METRIC}`\n\nEvery run for a metric's task computes it; these have parameters.\n")
    metrics = [_rows(METRICS.get(name).Params, prefix=f"{METRIC}.{name}.") for name in METRICS.names()]
    parts.append(_table(chain.from_iterable(metrics)))
    operational = ", ".join(f"`{name}`" for name in OPERATIONAL)
    parts.append("## On resume\n\nThese may change when a run is resumed, as they do not decide what it computes:")
    parts.append(f"{operational}.\n")
    renamed = "".join(f"| `{old}` | `{new}` |\n" for old, new in RENAMED.items())
    parts.append(f"## Earlier names\n\n| earlier | now |\n|---|---|\n{renamed}")
    return "\n".join(parts)


def _rows(schema: type[BaseModel], *, prefix: str = "") -> Iterator[str]:
    for name, field in schema.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            continue
        default = "required" if field.is_required() else f"`{_show(field.get_default())}`"
        description = (field.description or "").replace("|", "\\|")
        yield f"| `{prefix}{field.alias or name}` | {default} | {description} |"


def _show(value: Any) -> str:
    if isinstance(value, Component):
        return value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _table(rows: Iterator[str]) -> str:
    return "| setting | default | meaning |\n|---|---|---|\n" + "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    print(settings_page(), end="")
