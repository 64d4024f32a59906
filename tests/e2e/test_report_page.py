"""The report in a real browser."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from feal.analysis.plots import PLOTS
from feal.analysis.report.build import build_report, render_body, render_page
from feal.analysis.runs import read_runs
from feal.experiment import start
from tests.copies import copied
from tests.e2e.browsing import WIDTHS, Sheet, chromium
from tests.runs import tiny

pytestmark = pytest.mark.slow

SITES = ("alder", "birch", "cedar", "damson", "elder", "fir")
EVIL = "<img src=x onerror='window.evil=1'><script>window.evil=1</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of feal, and others like it."""
    place = tmp_path_factory.mktemp("sweep")
    run = start(tiny(rounds=2, communication_rounds=1), out=place / "feal-0").folder
    for seed in range(3):
        if seed:
            copied(run, place / f"feal-{seed}", seed=seed)
        for model in ("global", "local", "ensemble"):
            copied(
                run,
                place / f"entropy-{model}-{seed}",
                change=lambda number, _, value: value + 0.02 * number,
                strategy={"name": "entropy", "query_model": model},
                loss="plain",
                seed=seed,
            )
        copied(run, place / f"random-{seed}", strategy="random", loss="plain", seed=seed)
    return place


@pytest.fixture(scope="module")
def report(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("report") / "report.html", sweep)


def _written(out: Path, *places: Path) -> Path:
    out.write_text(render_page(build_report(read_runs(places))))
    return out


@pytest.mark.parametrize("width", WIDTHS)
def test_every_section_opens_without_a_complaint_and_fits(
    report: Path, browser: Browser, width: str, tmp_path: Path
) -> None:
    sheet = Sheet(browser, width)
    sheet.page.goto(report.as_uri())
    for section in sheet.sections():
        sheet.turn_to(section)
        shown = sheet.page.eval_on_selector_all(
            '[role="tabpanel"]',
            "all => all.filter((panel) => panel.offsetParent !== null).map((panel) => panel.id)",
        )
        assert shown == [section]
        assert sheet.overflow() <= 0, section
        sheet.picture(tmp_path / f"{section}-{width}.png")
    assert sheet.complaints == []
    assert sheet.requests == [report.as_uri()]
    assert len(sheet.sections()) == 7
    sheet.page.close()


def test_tabs_follow_the_keyboard_and_the_address(report: Path, browser: Browser) -> None:
    sheet = Sheet(browser)
    sheet.page.goto(f"{report.as_uri()}#cost")
    assert sheet.page.is_visible("#cost")
    sheet.page.focus("#tab-cost")
    for key, there in (
        ("ArrowRight", "reproduce"),
        ("ArrowRight", "conclusions"),
        ("End", "reproduce"),
        ("Home", "conclusions"),
    ):
        sheet.page.keyboard.press(key)
        assert sheet.page.is_visible(f"#{there}")
        assert sheet.page.evaluate("document.activeElement.id") == f"tab-{there}"
    assert sheet.page.url.endswith("#conclusions")
    sheet.page.close()


def test_curves_carry_the_metrics_of_the_summary_and_menus_change_them(
    sweep: Path, browser: Browser, tmp_path: Path
) -> None:
    report = _written(tmp_path / "one.html", sweep / "feal-0")
    rounds = json.loads((sweep / "feal-0" / "summary.json").read_text())["rounds"]
    sheet = Sheet(browser)
    sheet.page.goto(report.as_uri())
    sheet.turn_to("learning")

    def shown() -> list[float]:
        return [float(point["value"]) for point in sheet.points("curves")]

    def heading() -> str:
        return str(sheet.page.text_content("#plot-curves .role-title-text"))

    def expected(metric: str, *keys: str) -> list[float]:
        values = [record["metrics"][metric] for record in rounds]
        for key in keys:
            values = [value[key] for value in values]
        return values

    assert (heading(), shown()) == (
        "Balanced accuracy",
        pytest.approx(expected("balanced_accuracy", "pooled"), rel=1e-5),
    )
    sheet.page.select_option("#canvas-curves select[name=metric]", label="accuracy")
    sheet.until("document.querySelector('#plot-curves .role-title-text').textContent === 'Accuracy'")
    assert shown() == pytest.approx(expected("accuracy", "pooled"), rel=1e-5)
    sheet.page.select_option("#canvas-curves select[name=over]", "birch")
    sheet.page.wait_for_timeout(300)
    assert shown() == pytest.approx(expected("accuracy", "sites", "birch"), rel=1e-5)
    # What was chosen stays when the chart is drawn again for another width.
    sheet.page.set_viewport_size({"width": 390, "height": 844})
    sheet.until("document.querySelector('#plot-curves svg.marks').getBoundingClientRect().right <= innerWidth")
    assert (heading(), shown()) == ("Accuracy", pytest.approx(expected("accuracy", "sites", "birch"), rel=1e-5))
    assert sheet.complaints == []
    sheet.page.close()


def test_a_click_on_the_legend_highlights_a_strategy(report: Path, browser: Browser) -> None:
    sheet = Sheet(browser)
    sheet.page.goto(report.as_uri())
    sheet.turn_to("learning")
    assert set(sheet.opacities("curves").values()) == {1.0}
    sheet.page.locator("#plot-curves .role-legend-label text", has_text="feal").click(force=True)
    sheet.page.wait_for_timeout(300)
    shown = sheet.opacities("curves")
    assert shown.pop("feal") == 1.0
    assert set(shown.values()) == {0.1}
    sheet.page.close()


def test_hovering_tells_value_interval_and_seeds(report: Path, browser: Browser) -> None:
    sheet = Sheet(browser)
    sheet.page.goto(report.as_uri())
    sheet.turn_to("learning")
    sheet.page.locator("#plot-curves .mark-symbol path[aria-label*='Strategy: feal']").first.hover(force=True)
    sheet.page.wait_for_selector("#vg-tooltip-element.visible")
    text = sheet.page.inner_text("#vg-tooltip-element")
    assert "Strategy" in text
    assert "95 % interval" in text
    assert "3 seeds" in text
    assert sheet.complaints == []
    sheet.page.close()


def test_a_chart_can_be_saved_from_the_page(report: Path, browser: Browser) -> None:
    sheet = Sheet(browser)
    sheet.page.goto(report.as_uri())
    sheet.turn_to("learning")
    sheet.page.click("#plot-curves summary")
    with sheet.page.expect_download() as download:
        sheet.page.click("#plot-curves .vega-actions a:has-text('SVG')")
    assert download.value.suggested_filename == "curves.svg"
    assert download.value.path().read_bytes().startswith(b"<svg")
    assert sheet.complaints == []
    sheet.page.close()


def test_no_image_is_inside_unless_asked_for(sweep: Path, browser: Browser, tmp_path: Path) -> None:
    for asked in (False, True):
        made = build_report(read_runs([sweep / "feal-0"]), pictures=asked)
        report = tmp_path / f"{asked}.html"
        report.write_text(render_page(made))
        sheet = Sheet(browser)
        sheet.page.goto(report.as_uri())
        for section in sheet.sections():
            sheet.turn_to(section)
        # Densities are pictures, too: whether a plot is of patients, it says itself.
        assert ("data:image/jpeg" in render_body(made)) is asked
        assert bool(sheet.page.query_selector_all("main img:not(.picture)")) is asked
        of_patients = {name for name in PLOTS.names() if PLOTS.get(name).shows_patients}
        shown = {plot.name for _, plot in made.plots if plot.chart or plot.picture}
        assert asked or not shown & of_patients
        if asked:
            sheet.page.click("#tab-selection")
            sheet.picture(tmp_path / "pictures.png")
            assert sheet.page.evaluate(
                "[...document.images].filter((i) => i.offsetParent).every((i) => i.naturalWidth)"
            )
        assert sheet.complaints == []
        sheet.page.close()


def test_hostile_names_do_nothing(sweep: Path, browser: Browser, tmp_path: Path) -> None:
    run = copied(sweep / "feal-0", tmp_path / "run", strategy=f"own.py:{EVIL}", loss="plain")
    log = (run / "metrics.jsonl").read_text().replace('"birch"', json.dumps(EVIL))
    (run / "metrics.jsonl").write_text(log)
    state = json.loads((run / "state.json").read_text().replace('"birch"', json.dumps(EVIL)))
    state["facts"]["classes"][0] = EVIL
    (run / "state.json").write_text(json.dumps(state | {"log_bytes": len(log.encode())}))
    sheet = Sheet(browser)
    sheet.page.goto(_written(tmp_path / "report.html", run).as_uri())
    for section in sheet.sections():
        sheet.turn_to(section)
    assert EVIL in sheet.page.inner_text(".about")
    assert sheet.page.evaluate("window.evil") is None
    assert sheet.page.query_selector("img:not(.picture)") is None
    sheet.page.click("#tab-learning")
    sheet.page.locator("#plot-curves .mark-symbol path[aria-label]").first.hover(force=True)
    sheet.page.wait_for_selector("#vg-tooltip-element.visible")
    assert "<img src=x" in sheet.page.inner_text("#vg-tooltip-element")
    assert sheet.page.evaluate("window.evil") is None
    assert sheet.complaints == []
    sheet.page.close()


def test_all_sections_and_plots_are_printed(report: Path, browser: Browser, tmp_path: Path) -> None:
    sheet = Sheet(browser)
    sheet.page.goto(report.as_uri())
    sheet.page.wait_for_selector("body[data-ready]")
    sheet.page.pdf(path=tmp_path / "report.pdf")
    undrawn = sheet.page.eval_on_selector_all(
        ".plot", "all => all.filter((p) => !p.querySelector('svg.marks')).map((p) => p.id)"
    )
    assert undrawn == []
    # On paper a menu is plain text.
    sheet.page.emulate_media(media="print")
    assert sheet.page.is_visible("#canvas-curves select")
    assert (
        sheet.page.eval_on_selector("#canvas-curves select", "menu => getComputedStyle(menu).borderTopWidth")
        == "0px"
    )
    sheet.page.emulate_media(media="screen")
    assert sheet.page.is_visible("#conclusions")
    assert not sheet.page.is_visible("#cost")
    assert sheet.complaints == []
    sheet.page.close()


def test_a_long_sweep_opens_in_three_seconds(sweep: Path, browser: Browser, tmp_path: Path) -> None:
    """20 strategies x 10 rounds x 6 sites."""
    place = tmp_path / "long"
    asked = ("badge", "coreset", "entropy", "gradnorm", "tod")
    kinds = [(name, model) for name in asked for model in ("global", "local", "ensemble")]
    kinds += [(name, None) for name in ("feal", "kafal", "logo", "random", "strata")]
    for number, (strategy, model) in enumerate(kinds):
        run = copied(
            sweep / "feal-0",
            place / str(number),
            strategy={"name": strategy, **({"query_model": model} if model else {})},
            loss="plain",
            rounds=10,
        )
        _lengthen(run, shift=0.01 * number)
    report = _written(tmp_path / "long.html", place)
    assert report.stat().st_size < 15e6
    taken, worked = [], []
    for _ in range(3):
        sheet = Sheet(browser)
        clock = sheet.clock()
        before = time.monotonic()
        sheet.page.goto(f"{report.as_uri()}#learning")
        sheet.page.wait_for_selector("#plot-curves .mark-symbol path[aria-label]", state="attached")
        taken.append(time.monotonic() - before)
        worked.append(clock())
        assert sheet.complaints == []
        assert len({point["series"] for point in sheet.points("curves")}) == 10
        sheet.picture(tmp_path / "long.png")
        sheet.page.close()
    print(
        f"{report.stat().st_size / 1e6:.1f} MB, opened in {min(taken):.2f} s, {min(worked):.2f} s of them at work"
    )
    # What the page itself takes: other work that keeps the cores busy would be in the time on the wall.
    assert min(worked) < 2.5


def test_the_clock_counts_work_and_not_waiting(browser: Browser) -> None:
    sheet = Sheet(browser)
    clock = sheet.clock()
    sheet.page.wait_for_timeout(1000)
    idle = clock()
    sheet.page.evaluate("() => { let sum = 0; for (let i = 0; i < 5e8; i++) sum += i % 7; return sum; }")
    assert idle < 0.1
    assert clock() - idle > 0.1
    sheet.page.close()


def _lengthen(run: Path, *, shift: float) -> None:
    """Ten rounds at six sites out of a run's last one."""
    like = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    sites = like["metrics"]["accuracy"]["sites"]

    def spread(by_site: dict[str, object]) -> dict[str, object]:
        return dict.fromkeys(SITES, by_site["alder"])

    events = []
    for number in range(1, 11):
        height = shift + 0.05 * number
        figures = {"pooled": height, "mean": height, "sites": dict.fromkeys(SITES, height)}
        diagnostics = {
            **like["diagnostics"],
            "sites": spread(like["diagnostics"]["sites"]),
            "selection": spread(like["diagnostics"]["selection"]),
        }
        events.append(
            like
            | {
                "round": number,
                "labels": dict.fromkeys(SITES, 10 * number),
                "metrics": dict.fromkeys(like["metrics"], figures),
                "diagnostics": diagnostics,
                "energy": spread(like["energy"]),
            }
        )
    assert set(sites) == {"alder", "birch"}
    log = "".join(json.dumps(event) + "\n" for event in events)
    (run / "metrics.jsonl").write_text(log)
    state = json.loads((run / "state.json").read_text())
    state |= {"round": 10, "labels": dict.fromkeys(SITES, 100), "log_bytes": len(log.encode())}
    (run / "state.json").write_text(json.dumps(state))
