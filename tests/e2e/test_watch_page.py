"""The live page in a real browser, beside runs that begin, go on, end and vanish."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feal.experiment import start
from tests.copies import copied, cut
from tests.e2e.browsing import Sheet, chromium
from tests.runs import tiny

pytestmark = pytest.mark.slow

TOP = "document.getElementById('figure-curves').getBoundingClientRect().top"


@contextmanager
def _watching(place: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from feal.cli import main; main()", "watch", str(place), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, "it ended before it said where it is"
            said += line
        yield re.findall(r"http://[\d.:]+/", said)[0], process
    finally:
        process.kill()
        process.communicate()


def _ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def test_the_page_follows_runs_and_keeps_the_readers_place(tmp_path: Path) -> None:
    run = start(tiny(rounds=2, communication_rounds=1), out=tmp_path / "made" / "run").folder
    place = tmp_path / "runs"
    place.mkdir()
    with _watching(place) as (address, process), chromium() as browser:
        assert address.startswith("http://127.0.0.1:")
        sheet = Sheet(browser)
        page = sheet.page
        page.goto(address)
        page.wait_for_selector("text=There is no run in")
        page.screenshot(path=tmp_path / "empty.png")

        cut(copied(run, place / "one"), rounds=1)
        page.wait_for_selector("text=no run is finished", timeout=60_000)
        page.wait_for_selector("text=one (feal, seed 0)")
        sheet.turn_to("learning")
        page.select_option("#canvas-curves select", "accuracy")
        page.set_viewport_size({"width": 1280, "height": 400})
        page.evaluate("window.scrollTo(0, 240)")
        before = page.evaluate(TOP)
        assert before < 200

        # The run goes on to its end, and another one comes.
        copied(run, place / "two", seed=1)
        shutil.rmtree(place / "one")
        copied(run, place / "one")
        page.wait_for_selector("text=2 of 2 runs finished", timeout=60_000)
        sheet.until("document.querySelectorAll('#plot-curves .mark-symbol path[aria-label]').length === 2")
        assert page.is_visible("#learning")
        assert page.evaluate(TOP) == pytest.approx(before, abs=2)
        assert page.eval_on_selector("#canvas-curves select", "menu => menu.value") == "accuracy"
        assert page.text_content("#plot-curves .role-title-text") == "Accuracy"
        for width, (wide, high) in {"desktop": (1280, 900), "phone": (390, 844)}.items():
            page.set_viewport_size({"width": wide, "height": high})
            page.wait_for_timeout(500)
            assert sheet.overflow() <= 0
            sheet.until(
                "document.querySelector('#plot-curves svg.marks').getBoundingClientRect().right <= innerWidth"
            )
            sheet.picture(tmp_path / f"watch-{width}.png")

        shutil.rmtree(place)
        page.wait_for_selector("text=is gone", timeout=60_000)
        assert page.is_visible("#plot-curves")
        place.mkdir()
        cut(copied(run, place / "again"), rounds=1)
        page.wait_for_selector("text=again (feal, seed 0)", timeout=60_000)
        assert sheet.complaints == []
        assert {request.partition("?")[0].removeprefix(address) for request in sheet.requests} == {
            "", "status.json", "content.json",
        }  # fmt: skip

        assert _ended(process) == (130, "")
        page.wait_for_selector("text=The server does not respond", timeout=60_000)
    port = address.rsplit(":", 1)[1].strip("/")
    with _watching(place, "--port", port) as (again, process):
        assert again == address
        assert _ended(process)[0] == 130
