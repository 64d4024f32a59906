import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from reproduce.__main__ import main
from reproduce.paper import read_differences, read_entries
from reproduce.tests.pretend import write_run

Show = Callable[..., str]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Return what a command prints, with each run of spaces as one."""

    def run(*words: object, squeeze: bool = True) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 0
        text = capsys.readouterr().out
        return " ".join(text.split()) if squeeze else text

    return run


@pytest.fixture
def isic(tmp_path: Path) -> Path:
    """Write three seeds of feal, an unfinished entropy with another learning rate, and lambda 1e-3."""
    place = tmp_path / "isic"
    for seed in range(3):
        values = [0.5, 0.64 + seed / 100, 0.66, 0.67, 0.68]
        write_run(place / f"feal-{seed}", "fed-isic", {"seed": seed}, metrics={"balanced_accuracy": values})
    entropy = {"strategy": "entropy", "strategy.query_model": "ensemble", "training.lr": 1e-3}
    write_run(place / "entropy", "fed-isic", entropy, metrics={"balanced_accuracy": [0.5, 0.6]}, stage="close")
    weak = {"loss.lambda": 1e-3}
    write_run(place / "weak", "fed-isic", weak, metrics={"balanced_accuracy": [0.5, 0.6, 0.6, 0.6, 0.6]})
    return place


def test_every_table_and_figure_is_listed(show: Show) -> None:
    listed = show()
    for entry in read_entries().values():
        assert f"| {entry.name} | {entry.shows} | {len(entry.published) or 'none'} |" in listed


@pytest.mark.parametrize("name", list(read_entries()))
def test_entry_shows_commands_and_differences(show: Show, name: str) -> None:
    text, entry = show(name, squeeze=False), read_entries()[name]
    assert set(entry.commands()) <= set(text.splitlines())
    assert {f"- {read_differences()[key]}" for key in entry.differences} <= set(text.splitlines())
    assert ("Source: Chen, Ma, Cui, Xia" in text) == bool(entry.published)


def test_numbers_are_shown_as_printed(show: Show) -> None:
    ablation = show("table-2")
    assert "of feal by strategy.terms** | setting | round 2 |" in ablation
    assert "| epistemic-global + aleatoric-global | 61.95 ± 2.12 | 66.08 ± 0.40 | 67.19 ± 1.02 |" in ablation
    assert "CVPR 2024, table-8." in show("table-3")
    assert "| full | | 78.18 |" in show("table-1")
    assert "| gradnorm | ensemble | 1126.95 | 5335.42 | 72.49 | 128.49 | 67.42 |" in show("table-10")
    assert "| octa-3m | 160 | 40 |" in show("table-11")
    main_table = show("table-6")
    assert "| feal | | **65.18 ± 0.41** | **67.77 ± 1.31** |" in main_table
    assert "| _63.23 ± 1.25_ |" in main_table
    assert "fed-camelyon: model densenet-121, budget 500, communication_rounds 100, lambda 0.01" in main_table
    table = list(csv.DictReader(io.StringIO(show("table-4", "--format", "csv", squeeze=False))))
    assert (len(table), table[0]["value"], table[0]["changes"]) == (20, "63.49", "loss.lambda=1e-3")
    assert len(show("--format", "csv", squeeze=False).splitlines()) == 765


def test_ours_beside_theirs(show: Show, isic: Path) -> None:
    text = show("table-6", "--runs", isic)
    assert "| feal | | paper | 65.18 ± 0.41 | 67.77 ± 1.31 | 68.41 ± 1.01 | 68.46 ± 0.37 |" in text
    assert "| ours | 65.00 ± 1.00 | 66.00 ± 0.00 | 67.00 ± 0.00 | 68.00 ± 0.00 |" in text
    assert "| difference | -0.18 | -1.77 | -1.41 | -0.46 |" in text
    assert "| seeds | 3 | 3 | 3 | 3 |" in text
    assert "| entropy | ensemble | paper | 63.21 ± 0.59 | 64.86 ± 1.09 | 66.35 ± 0.14 | 65.57 ± 1.92 |" in text
    assert "| ours | 60.00 | - | - | - |" in text
    assert "training.lr is 0.001 instead of 0.0005 (fed-isic entropy ensemble)" in text
    assert "entropy ensemble is unfinished: seed 0" in text
    assert "No run of fed-isic for: random; entropy global;" in text


def test_other_images_and_networks_are_marked_in_the_table(show: Show, tmp_path: Path) -> None:
    changes = {"sites": ["bcn", "rosendahl"], "model": "tiny-cnn", "weights": "none"}
    write_run(tmp_path / "run", "fed-isic", changes, metrics={"balanced_accuracy": [0.5, 0.6]})
    text = show("table-2", "--runs", tmp_path)
    note = "sites bcn, rosendahl only; tiny-cnn instead of efficientnet-b0; weights none instead of imagenet"
    assert f"by strategy.terms (ours: {note})**" in text
    assert "model is tiny-cnn instead of efficientnet-b0 (all rows)" in text


def test_unusable_runs_are_reported_and_irrelevant_settings_are_not(
    show: Show, isic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = {"balanced_accuracy": [0.5, 0.6, 0.6, 0.6, 0.6]}
    write_run(isic / "random", "fed-isic", {"strategy": "random", "threads": 2}, metrics=metrics)
    for name, file in (("one", "config.yaml"), ("two", "state.json")):
        write_run(isic / name, "fed-isic", {"strategy": "random", "seed": 7}, metrics=metrics)
        (isic / name / file).write_text("{")
    text = show("table-6", "--runs", isic)
    assert "| random | | paper | 61.59 ± 1.45 | 64.90 ± 1.53 | 65.53 ± 1.31 | 64.99 ± 1.43 |" in text
    assert "threads" not in text
    assert f"Left out: {isic / 'one' / 'config.yaml'} is damaged" in text
    assert f"{isic / 'two' / 'state.json'} is damaged" in text
    assert main(["table-6", "--runs", str(isic / "one")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "config.yaml is damaged" in printed.err


def test_ablation_finds_its_rows_among_other_runs(show: Show, isic: Path) -> None:
    text = show("table-4", "--runs", isic)
    assert "| 1e-3 | paper | 63.49 ± 3.00 | 64.57 ± 2.70 | 66.25 ± 1.17 | 65.45 ± 1.06 |" in text
    assert "| ours | 60.00 | 60.00 | 60.00 | 60.00 |" in text
    assert "| 1e-2 | paper | 65.18 ± 0.41 |" in text
    assert "All runs have the paper's settings." in text
    assert "No run of fed-isic for: 5e-3; 5e-2; 1e-1." in text


def test_csv_pooled_and_several_folders(show: Show, isic: Path, tmp_path: Path) -> None:
    camelyon = write_run(tmp_path / "camelyon", "fed-camelyon", metrics={"accuracy": [0.9, 0.95]})
    text = show("table-6", "--runs", isic, camelyon, "--format", "csv", squeeze=False)
    table = list(csv.DictReader(io.StringIO(text)))
    first = next(row for row in table if row["strategy"] == "feal" and row["preset"] == "fed-isic")
    assert (first["paper"], first["ours"], first["ours_sd"], first["seeds"]) == ("65.18", "65", "1", "3")
    assert float(first["difference"]) == pytest.approx(-0.18)
    other = next(row for row in table if row["preset"] == "fed-camelyon")
    assert (other["paper"], other["ours"], other["ours_sd"]) == ("95.79", "95", "")
    assert show("table-6", "--runs", isic, "--runs", camelyon, "--format", "csv", squeeze=False) == text
    assert "| ours | 66.00 ± 1.00 |" in show("table-6", "--runs", isic, "--over", "pooled")


def test_unstated_round_and_selection_time(show: Show, tmp_path: Path) -> None:
    octa = write_run(tmp_path / "octa", "octa-500", metrics={"dice": [0.8, 0.9]})
    text = show("figure-19", "--runs", octa)
    assert "| feal | paper | 94.18 | 94.18 | | | ours | 80.00 | 90.00 | | | difference | -14.18 | -4.18 |" in text
    assert "does not state the round" in text
    polyp = write_run(tmp_path / "polyp", "fed-polyp", metrics={"dice": [0.8, 0.9]}, seconds=[20.0, 90.0])
    text = show("table-10", "--runs", polyp)
    assert "paper | 14.88 | | | ours | 20.00 | | | difference | +5.12 | | | seeds | 1 |" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["tabel-2"], "did you mean 'table-2'?"),
        (["table-1", "--runs", "isic"], "is a run on fed-isic, and table-1 is about fed-polyp"),
        (["table-5", "--runs", "isic"], "prints only sizes of data sets for table-5"),
        (["figure-5", "--runs", "isic"], "prints no numbers for figure-5"),
        (["table-2", "--runs", "absent"], "There is no directory"),
        (["table-9", "--runs", "polyp"], "None of the runs corresponds to a row of table-9"),
        (["--runs", "isic"], "--runs needs the name of a table"),
    ],
)
def test_mistakes(
    isic: Path,
    words: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(isic.parent)
    write_run(Path("polyp"), "fed-polyp", {"strategy": "random"}, metrics={"dice": [0.5]})
    assert main(words) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
