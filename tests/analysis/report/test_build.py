import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pytest

from feal.analysis.plots import PLOTS, Chart, Plot, PlotRows
from feal.analysis.report.build import SECTIONS, Report, build_report, pack_charts, render_body, render_page
from feal.analysis.runs import Run, RunCollection, open_run
from feal.errors import FealError
from feal.settings import Component
from tests.analysis.made import made

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def _draw(rows: PlotRows) -> Chart:
    bars = alt.Chart().mark_bar().encode(x="site:N", y="value:Q", color="site:N")
    return Chart(rows=rows, tiers=[[bars]], highlight="site", note=EVIL)


def _refuse(_: list[Run]) -> PlotRows:
    raise FealError("These runs kept no diagnostics: run them with diagnostics=true.")


HOSTILE = Plot(
    title=EVIL,
    reading=f"{EVIL} Twice.",
    section="cost",
    needs="a finished round",
    data=lambda _: [{"site": EVIL, "value": 0.5}],
    draw=_draw,
)


@pytest.fixture
def run(finished: Path) -> Run:
    return open_run(finished)


@pytest.fixture(scope="module")
def report(finished: Path) -> Report:
    """Of the finished run, with all plots."""
    return build_report([open_run(finished)])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> object:
    """Lets there be no plot but the given one."""

    def put(plot: Plot) -> None:
        monkeypatch.setattr(PLOTS, "_entries", {"own": plot})

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
    only(HOSTILE)
    state = replace(run.state, facts={**run.state.facts, "classes": [EVIL, "b", "c", "d", "e"]})
    settings = run.settings.model_copy(update={"dataset": Component(name=EVIL), "strategy": Component(name=EVIL)})
    page = render_page(
        build_report([replace(run, state=state, settings=settings, problems=(EVIL,), path=Path(EVIL))])
    )
    plain = Elements(page)
    assert not [attributes for tag, attributes in plain.found if tag == "img" or "onerror" in attributes]
    assert not any("alert(" in script for script in plain.scripts)
    assert EVIL not in page
    assert "&lt;script&gt;" in page
    data = re.search(r'id="charts">(.*?)</script>', page, flags=re.DOTALL)[1]
    packed = base64.b64decode(json.loads(data)["own"]["packed"])
    (rows,) = json.loads(gzip.decompress(packed))["datasets"].values()
    assert rows == [{"site": EVIL, "value": 0.5}]


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_be_fetched(report: Report) -> None:
    page = render_page(report)
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
    assert len(page) < 2e6


@pytest.mark.parametrize(
    ("plot", "why"),
    [
        (replace(HOSTILE, data=_refuse), "Not shown: These runs kept no diagnostics: run"),
        (
            replace(HOSTILE, data=lambda _: []),
            "Not shown: these runs do not contain what it needs: a finished round.",
        ),
    ],
)
def test_a_plot_that_cannot_be_shown_says_why(run: Run, only: object, plot: Plot, why: str) -> None:
    only(plot)
    report = build_report([run])
    assert why in render_body(report)
    assert pack_charts(report) == {}


def test_every_section_stands_in_its_order_with_accessible_names(report: Report) -> None:
    elements = Elements(render_body(report)).found
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


def test_how_to_make_it_again_is_told(run: Run, report: Report) -> None:
    again = report.provenance
    assert again is not None
    html = render_body(report)
    assert "budget: 5" in again.configuration
    assert again.manifests == (json.loads((run.path / "origin.json").read_text())[0]["manifest"],)
    assert again.manifests[0] in html
    assert again.versions["feal"]
    assert f"feal run {run.path}/config.yaml" in html


def test_a_run_that_noted_no_origin_is_tied_to_its_data_by_its_sites(
    run: Run, report: Report, only: object, tmp_path: Path
) -> None:
    noted = report.provenance
    only(HOSTILE)
    (run.path / "origin.json").rename(tmp_path / "origin.json")
    try:
        again = build_report([run]).provenance
    finally:
        (tmp_path / "origin.json").rename(run.path / "origin.json")
    assert again is not None
    assert noted is not None
    assert again.manifests == noted.manifests
    assert again.versions == {}


@pytest.mark.usefixtures("curves_only")
def test_unfinished_runs_and_unreadable_lines_are_told_first(run: Run) -> None:
    stopped = replace(run, state=replace(run.state, stage="train"), problems=("log, line 3: no record.",))
    assert build_report([stopped]).notices == ("1 run of 1 is not finished.", "log, line 3: no record.")


@pytest.mark.usefixtures("curves_only")
def test_what_cannot_be_used_is_among_the_notices() -> None:
    note = "runs/one/state.json is damaged (it is missing). It is left out."
    runs = (made("random", 0, (0.2, 0.3, 0.4)),)
    assert note in build_report(RunCollection(runs=runs, unused=1, left_out=(note,))).notices
    assert build_report(runs).notices == ()


@pytest.mark.usefixtures("curves_only")
def test_one_run_is_not_called_all_runs() -> None:
    runs = [made("random", seed, (0.2, 0.3, 0.4)) for seed in (0, 1)]
    assert "<summary>The run and its status</summary>" in render_body(build_report(runs[:1]))
    assert "<summary>All 2 runs and their status</summary>" in render_body(build_report(runs))
