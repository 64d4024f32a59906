"""A headless Chromium for tests, and pages that keep what went wrong in them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium; a test is skipped where there is none.

    No Python package brings a browser along, and `make test` is to work on a fresh machine without one.
    """
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Sheet:
    """A page, what it complained about, and what it asked of the network."""

    def __init__(self, browser: Browser, width: str = "desktop") -> None:
        wide, high = WIDTHS[width]
        self.page: Page = browser.new_page(viewport={"width": wide, "height": high})
        # Nothing here is about how long a busy machine takes.
        self.page.set_default_timeout(120_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def clock(self) -> Callable[[], float]:
        """Begins to count, and tells the seconds that the page kept a core busy since."""
        session = self.page.context.new_cdp_session(self.page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def told() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return float(next(entry["value"] for entry in metrics if entry["name"] == "TaskDuration"))

        return told

    def sections(self) -> list[str]:
        """Names of the sections, in their order."""
        found: list[str] = self.page.eval_on_selector_all(
            '[role="tab"]', "tabs => tabs.map((tab) => tab.getAttribute('aria-controls'))"
        )
        return found

    def turn_to(self, section: str) -> None:
        """Choose a section and wait until every chart of it is drawn."""
        self.page.click(f"#tab-{section}")
        for plot in self.page.query_selector_all(f"#{section} .plot"):
            plot.scroll_into_view_if_needed()
            name = plot.get_attribute("id")
            self.page.wait_for_selector(f"#{name} svg.marks", state="attached")

    def until(self, expression: str) -> None:
        """Wait for something to be true; the page's own policy forbids it to be asked from inside."""
        for _ in range(600):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"it never came to be: {expression}")

    def points(self, plot: str) -> list[dict[str, str]]:
        """What screen readers are told of the symbols of a chart, by the names of its columns."""
        labels: list[str] = self.page.eval_on_selector_all(
            f"#plot-{plot} .mark-symbol path[aria-label]", "all => all.map((p) => p.getAttribute('aria-label'))"
        )
        return [dict(part.split(": ", 1) for part in label.split("; ")) for label in labels]

    def opacities(self, plot: str) -> dict[str, float]:
        """The largest opacity of each series' symbols."""
        found: dict[str, float] = self.page.evaluate(
            """(name) => {
                const found = {};
                for (const path of document.querySelectorAll(`#plot-${name} .mark-symbol path[aria-label]`)) {
                    const series = /Strategy: ([^;]*)/.exec(path.getAttribute("aria-label"))?.[1];
                    if (series) found[series] = Math.max(found[series] ?? 0, Number(path.getAttribute("opacity")));
                }
                return found;
            }""",
            plot,
        )
        return found

    def overflow(self) -> int:
        """How many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def picture(self, path: Path) -> None:
        """Keep a screenshot of the whole page."""
        self.page.evaluate("window.scrollTo(0, 0)")
        self.page.screenshot(path=path, full_page=True)
