import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import plotly.graph_objects as go
import pytest

from feal.analysis.figures import FIGURES
from feal.analysis.figures.contract import Rows
from feal.analysis.report import contents, render
from feal.analysis.report.contents import SECTIONS
from feal.analysis.report.page import drawings, render_contents
from feal.analysis.runs import Run, read_run
from feal.errors import FealError

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


class Named:
    """A figure whose title, reading and data are hostile."""

    title: ClassVar[str] = EVIL
    reading: ClassVar[str] = f"{EVIL} Twice."
    section: ClassVar[str] = "cost"
    rows: ClassVar[Rows] = [{"site": EVIL, "value": 0.5}]

    @classmethod
    def data(cls, _: list[Run]) -> Rows:
        return cls.rows

    @staticmethod
    def web(rows: Rows) -> go.Figure:
        return go.Figure(go.Bar(x=[row["site"] for row in rows], y=[row["value"] for row in rows]))


class Unwilling(Named):
    @classmethod
    def data(cls, _: list[Run]) -> Rows:
        raise FealError("These runs kept no diagnostics: run them with diagnostics=true.")


class Nothing(Named):
    rows: ClassVar[Rows] = []


@pytest.fixture
def run(finished: Path) -> Run:
    return read_run(finished)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> object:
    """Lets there be no figure but the given one."""

    def put(figure: type) -> None:
        monkeypatch.setattr(FIGURES, "_entries", {"own": figure})

    return put


class Elements(HTMLParser):
    """Names and attributes of all elements, and all scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = (tag, attrs) == ("script", [])
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_what_comes_from_runs_is_never_markup(run: Run, only: object) -> None:
    only(Named)
    state = replace(run.state, facts={**run.state.facts, "classes": [EVIL, "b", "c", "d", "e"]})
    settings = run.settings.model_copy(update={"dataset": EVIL, "strategy": EVIL})
    page = render(contents([replace(run, state=state, settings=settings, problems=(EVIL,), path=Path(EVIL))]))
    plain = Elements(page)
    assert not [attributes for tag, attributes in plain.found if tag == "img" or "onerror" in attributes]
    assert not any("alert(" in script for script in plain.scripts)
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    data = re.search(r'id="figures">(.*?)</script>', page, flags=re.DOTALL)[1]
    packed = base64.b64decode(json.loads(data)["own"]["packed"])
    assert json.loads(gzip.decompress(packed))["data"][0]["x"] == [EVIL]


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_be_fetched(run: Run) -> None:
    page = render(contents([run]))
    elements = Elements(page)
    (policy,) = [a["content"] for tag, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == rules["connect-src"] == ["'none'"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in elements.scripts]
    assert rules["script-src"] == [f"'sha256-{digest}'" for digest in hashes]
    assert len(hashes) == 2
    outside = [
        a for _, a in elements.found for key in ("src", "href") if not a.get(key, "data:").startswith("data:")
    ]
    assert outside == []
    assert len(page) < 6e6


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (Unwilling, "Not shown: These runs kept no diagnostics: run"),
        (Nothing, "Not shown: these runs hold nothing for it; it needs a finished round."),
    ],
)
def test_a_figure_that_cannot_be_shown_says_why(run: Run, only: object, figure: type, why: str) -> None:
    only(figure)
    made = contents([run])
    assert why in render_contents(made)
    assert json.loads(drawings(made)) == {}


def test_every_section_stands_in_its_order_with_accessible_names(run: Run) -> None:
    elements = Elements(render_contents(contents([run]))).found
    tabs = [attributes for tag, attributes in elements if attributes.get("role") == "tab"]
    panels = [attributes["id"] for tag, attributes in elements if attributes.get("role") == "tabpanel"]
    assert [tab["aria-controls"] for tab in tabs] == panels == list(SECTIONS)
    assert all("scope" in attributes for tag, attributes in elements if tag == "th")
    plots = [attributes for tag, attributes in elements if attributes.get("class") == "plot"]
    assert plots
    assert all(plot["aria-label"] for plot in plots)
    assert len({attributes["id"] for _, attributes in elements if "id" in attributes}) == len(
        [attributes for _, attributes in elements if "id" in attributes]
    )


def test_how_to_make_it_again_is_told(run: Run) -> None:
    made = contents([run])
    again = made.reproduction
    assert again is not None
    html = render_contents(made)
    assert "budget: 5" in again.configuration
    assert again.manifests == (json.loads((run.path / "origin.json").read_text())[0]["manifest"],)
    assert again.manifests[0] in html
    assert dict(again.versions)["feal"]
    assert f"feal run {run.path}/config.yaml" in html


def test_a_run_that_noted_no_origin_is_tied_to_its_data_by_its_sites(run: Run, tmp_path: Path) -> None:
    noted = contents([run]).reproduction
    (run.path / "origin.json").rename(tmp_path / "origin.json")
    try:
        again = contents([run]).reproduction
    finally:
        (tmp_path / "origin.json").rename(run.path / "origin.json")
    assert again is not None
    assert noted is not None
    assert again.manifests == noted.manifests
    assert again.versions == ()


def test_unfinished_runs_and_unreadable_lines_are_told_first(run: Run) -> None:
    stopped = replace(run, state=replace(run.state, stage="train"), problems=("log, line 3: no record.",))
    assert contents([stopped]).notices == ("1 run of 1 is not finished.", "log, line 3: no record.")
