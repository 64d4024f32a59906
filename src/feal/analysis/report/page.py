"""A report as HTML: templates beside this file, everything escaped, no network needed or allowed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from feal.analysis.colours import colour_of
from feal.analysis.report.contents import Contents

_FOLDER = Path(__file__).parent / "page"


def render(contents: Contents, *, live: str | None = None) -> str:
    """The whole page; `live` is the version of a page that follows runs (see `watching`)."""
    scripts = [_plotly(), _file("page.js"), *([_file("live.js")] if live is not None else [])]
    return _templates().get_template("page.html").render(
        contents=contents,
        policy=policy(scripts, live=live is not None),
        style=Markup(_file("page.css")),
        body=Markup(render_contents(contents)),
        figures=Markup(_inside_html(drawings(contents))),
        scripts=[Markup(script) for script in scripts],
        live=live,
    )  # fmt: skip


def render_contents(contents: Contents) -> str:
    """What stands inside the page's `main`, without the figures' data."""
    return _templates().get_template("contents.html").render(contents=contents)


def drawings(contents: Contents) -> str:
    """JSON: by figure its title, a stamp that changes when it does, and plotly's data and layout, packed."""
    return json.dumps(
        {
            figure.name: {"stamp": figure.stamp, "title": figure.title, "packed": _packed(figure.drawing or "{}")}
            for figure in contents.figures
        }
    )


def policy(scripts: list[str], *, live: bool) -> str:
    """A policy that forbids all but the page's own scripts, by their hashes, and inline style; no network."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "colour": colour_of,
        "number": _number,
        "signed": lambda value: f"{value:+.3f}",
        "whole": lambda value: "-" if math.isnan(value) else f"{value:.0f}",
    }
    return environment


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text()


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _packed(text: str) -> str:
    """Text as base64 of gzip: hovering words repeat so much that a long sweep's are a tenth of their size."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _inside_html(text: str) -> str:
    """JSON that no HTML parser can take for markup."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _number(value: Any) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"
