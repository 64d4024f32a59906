import csv
from pathlib import Path

import pytest

from feal.analysis.plots import PLOTS
from feal.experiment import start
from tests.command import Command
from tests.copies import copied, cut
from tests.runs import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run."""
    place = tmp_path_factory.mktemp("runs")
    start(tiny(rounds=2, communication_rounds=1), out=place / "feal")
    return place


def test_without_a_name_all_are_listed(command: Command) -> None:
    ended = command("plot")
    assert ended.code == 0
    for name in PLOTS.names():
        assert name in ended.out


@pytest.mark.parametrize(("suffix", "begins"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_files_are_what_they_say_and_the_same_again(
    command: Command, runs: Path, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    one, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
    for path in (one, other):
        ended = command("plot", "curves", runs, "-o", path)
        assert (ended.code, ended.err) == (0, "")
    assert one.read_bytes().startswith(begins)
    assert one.read_bytes() == other.read_bytes()
    assert b"CreationDate" not in one.read_bytes()
    assert "Learning curves. Each line is a strategy" in ended.out


def test_fonts_are_inside_a_pdf(command: Command, runs: Path, tmp_path: Path) -> None:
    command("plot", "curves", runs, "-o", tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content


@pytest.mark.parametrize("name", ["cost", "curves", "relaxation", "reliability", "uncertainty", "yield"])
def test_every_figure_of_a_real_run_is_drawn(command: Command, runs: Path, tmp_path: Path, name: str) -> None:
    assert command("plot", name, runs, "-o", tmp_path / "a.svg").code == 0
    assert (tmp_path / "a.svg").stat().st_size > 5000


def test_what_is_not_finished_or_unreadable_is_told(command: Command, runs: Path, tmp_path: Path) -> None:
    run = cut(copied(runs / "feal", tmp_path / "runs" / "feal"), rounds=1)
    ended = command("plot", "cost", tmp_path / "runs", "-o", tmp_path / "a.png")
    assert "1 run of 1 is not finished." in ended.out
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b"{", b"#", 1))
    ended = command("plot", "curves", tmp_path / "runs", "-o", tmp_path / "a.png")
    assert ended.code == 0
    assert "metrics.jsonl, line 1: no record can be read there" in " ".join(ended.out.split())


def test_numbers_of_some_rows_as_a_table(command: Command, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    command("plot", "curves", runs, "-o", out, "--where", "metric=accuracy", "--where", "over=mean")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["metric"], row["over"], row["round"], row["n"]) for row in rows] == [
        ("accuracy", "mean", "1", "1"), ("accuracy", "mean", "2", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["curvs", "RUNS", "-o", "a.pdf"], "There is no plot 'curvs': did you mean 'curves'?"),
        (["curves", "RUNS", "-o", "a.docx"], "a.docx has no known file type"),
        (["curves", "RUNS"], "Name the runs and the file to write: `feal plot curves"),
        (
            ["curves", "-o", "a.pdf"],
            "Name the runs and the file to write: `feal plot curves runs -o curves.pdf`",
        ),
        (["curves", "absent", "-o", "a.pdf"], "There is no directory absent"),
        (["curves", "RUNS", "-o", "a.pdf", "--where", "metric"], "--where metric is not a condition"),
        (["curves", "RUNS", "-o", "a.pdf", "--where", "metrik=dice"], "did you mean 'metric'?"),
        (["curves", "RUNS", "-o", "a.pdf", "--where", "over=poled"], "There is no over 'poled'"),
    ],
)
def test_mistakes_are_one_sentence(
    command: Command, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command("plot", *(runs if word == "RUNS" else word for word in words))
    assert ended.code == 2
    assert message in ended.err
    assert not list(tmp_path.iterdir())


def test_nothing_to_show_says_what_is_needed(command: Command, tmp_path: Path) -> None:
    synthetic = {"sites": 2, "train": 40, "test": 0, "classes": 5}
    start(tiny(strategy="random", rounds=1, communication_rounds=1, dataset=synthetic), out=tmp_path / "run")
    for name in ("curves", "uncertainty", "zero-evidence", "reliability", "relaxation", "yield"):
        ended = command("plot", name, tmp_path / "run", "-o", tmp_path / "a.pdf")
        assert ended.code == 2
        assert f"These runs hold nothing for {name}: it needs " in ended.err
        assert not (tmp_path / "a.pdf").exists()
