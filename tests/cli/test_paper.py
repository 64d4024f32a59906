import csv
import io
from pathlib import Path

import pytest

from feal.config.paper_map import entries, entry_named
from tests.command import Command
from tests.paths import PROJECT
from tests.published_runs import pretend


@pytest.fixture
def isic(tmp_path: Path) -> Path:
    """Three seeds of feal, one of entropy under another learning rate that is not finished, one of lambda 1e-3."""
    place = tmp_path / "isic"
    for seed in range(3):
        values = [0.5, 0.64 + seed / 100, 0.66, 0.67, 0.68]
        pretend(place / f"feal-{seed}", "fed-isic", {"seed": seed}, figures={"balanced_accuracy": values})
    entropy = {"strategy": "entropy", "query_model": "ensemble", "training.lr": 1e-3}
    pretend(place / "entropy", "fed-isic", entropy, figures={"balanced_accuracy": [0.5, 0.6]}, stage="close")
    weak = {"evidence.lambda": 1e-3}
    pretend(place / "weak", "fed-isic", weak, figures={"balanced_accuracy": [0.5, 0.6, 0.6, 0.6, 0.6]})
    return place


def _said(text: str) -> str:
    return " ".join(text.split())


def test_all_of_the_paper(command: Command) -> None:
    listed = command("paper")
    assert listed.code == 0, listed.err
    for entry in entries():
        assert f"\n{entry.name}  (" in f"\n{listed.out}"
        assert entry.shows in listed.out
    assert "figure-14" in listed.out
    assert "    feal sweep fed-isic evidence.lambda=1e-3,5e-3,1e-2,5e-2,1e-1 seed=0,1,2 --out" in listed.out
    assert command("paper", "--format", "markdown").out == (PROJECT / "docs" / "paper-map.md").read_text()
    table = list(csv.DictReader(io.StringIO(command("paper", "--format", "csv").out)))
    assert [row["name"] for row in table] == [entry.name for entry in entries()]


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_one_of_the_paper(command: Command, name: str) -> None:
    shown = command("paper", name)
    entry = entry_named(name)
    assert shown.code == 0, shown.err
    assert "…" not in shown.out
    for line in entry.commands():
        assert line in shown.out.splitlines()
    said = _said(shown.out)
    for difference in entry.differences():
        assert _said(difference) in said
    assert ("Source: Chen, Ma, Cui, Xia" in said) == bool(entry.published())


def test_numbers_stand_as_they_are_printed(command: Command) -> None:
    said = _said(command("paper", "table-2").out)
    assert "of feal by selection.terms setting round 2 round 3 round 4 round 5 ale-g 60.61 ± 1.57" in said
    assert "epi-g + ale-g 61.95 ± 2.12 66.08 ± 0.40 67.19 ± 1.02 66.85 ± 0.84" in said
    assert "Table 2" in said
    assert "Source: Chen, Ma, Cui, Xia: Think Twice Before Selection, CVPR 2024, Table 8." in _said(
        command("paper", "table-3").out
    )
    assert "full 78.18" in _said(command("paper", "table-1").out)
    assert "gradnorm ensemble 1126.95 5335.42 72.49 128.49 67.42" in _said(command("paper", "table-10").out)
    assert "octa-3m 160 40" in _said(command("paper", "table-11").out)
    page = command("paper", "table-6", "--format", "markdown").out
    assert "| feal |  | **65.18 ± 0.41** | **67.77 ± 1.31** |" in page
    assert "| <u>63.23 ± 1.25</u> |" in page
    table = list(csv.DictReader(io.StringIO(command("paper", "table-4", "--format", "csv").out)))
    assert (len(table), table[0]["value"], table[0]["changes"]) == (20, "63.49", "evidence.lambda=1e-3")


def test_ours_beside_theirs(command: Command, isic: Path) -> None:
    shown = command("paper", "table-6", "--runs", isic)
    assert shown.code == 0, shown.err
    lines = [_said(line) for line in shown.out.splitlines()]
    feal = lines.index("feal paper 65.18 ± 0.41 67.77 ± 1.31 68.41 ± 1.01 68.46 ± 0.37")
    assert lines[feal + 1 : feal + 4] == [
        "ours 65.00 ± 1.00 66.00 ± 0.00 67.00 ± 0.00 68.00 ± 0.00",
        "diff. -0.18 -1.77 -1.41 -0.46",
        "seeds 3 3 3 3",
    ]
    entropy = lines.index("entropy ensemble paper 63.21 ± 0.59 64.86 ± 1.09 66.35 ± 0.14 65.57 ± 1.92")
    assert lines[entropy + 1] == "ours 60.00 - - -"
    said = _said(shown.out)
    assert "training.lr is 0.001 instead of 0.0005 (fed-isic entropy ensemble)" in said
    assert "entropy ensemble is unfinished: seed 0" in said
    assert "No run of fed-isic for: random; entropy global;" in said


def test_broken_runs_are_told_and_settings_that_are_not_heeded_are_not(command: Command, isic: Path) -> None:
    figures = {"balanced_accuracy": [0.5, 0.6, 0.6, 0.6, 0.6]}
    pretend(isic / "random", "fed-isic", {"strategy": "random", "selection.n": 9}, figures=figures)
    for name, file in (("one", "config.yaml"), ("two", "state.json")):
        pretend(isic / name, "fed-isic", {"strategy": "random", "seed": 7}, figures=figures)
        (isic / name / file).write_text("{")
    shown = command("paper", "table-6", "--runs", isic)
    assert shown.code == 0, shown.err
    said = _said(shown.out)
    assert "random paper 61.59 ± 1.45 64.90 ± 1.53 65.53 ± 1.31 64.99 ± 1.43 ours 60.00" in said
    assert "selection.n" not in said
    assert f"{isic / 'one' / 'config.yaml'} is damaged (it is no YAML any more)" in said
    assert f"{isic / 'two' / 'state.json'} is damaged" in said
    (isic / "random" / "config.yaml").write_text("[")
    alone = command("paper", "table-6", "--runs", isic / "random")
    assert (alone.code, alone.out) == (2, "")
    assert "config.yaml is damaged (it is no YAML any more)" in alone.err


def test_an_ablation_takes_its_rows_from_a_larger_folder(command: Command, isic: Path) -> None:
    said = _said(command("paper", "table-4", "--runs", isic).out)
    assert "1e-3 paper 63.49 ± 3.00 64.57 ± 2.70 66.25 ± 1.17 65.45 ± 1.06 ours 60.00 60.00 60.00 60.00" in said
    assert "1e-2 paper 65.18 ± 0.41" in said
    assert "The runs' settings are the table's." in said
    assert "No run of fed-isic for: 5e-3; 5e-2; 1e-1." in said


def test_other_forms_and_several_folders(command: Command, isic: Path, tmp_path: Path) -> None:
    pretend(tmp_path / "camelyon", "fed-camelyon", figures={"accuracy": [0.9, 0.95]})
    ended = command("paper", "table-6", "--runs", isic, tmp_path / "camelyon", "--format", "csv")
    assert ended.code == 0, ended.err
    table = list(csv.DictReader(io.StringIO(ended.out)))
    first = next(row for row in table if row["strategy"] == "feal" and row["preset"] == "fed-isic")
    assert (first["paper"], first["ours"], first["ours_sd"], first["seeds"]) == ("65.18", "65", "1", "3")
    assert float(first["difference"]) == pytest.approx(-0.18)
    other = next(row for row in table if row["preset"] == "fed-camelyon")
    assert (other["paper"], other["ours"], other["ours_sd"]) == ("95.79", "95", "")
    again = command("paper", "table-6", "--runs", isic, "--runs", tmp_path / "camelyon", "--format", "csv")
    assert again.out == ended.out
    pooled = command("paper", "table-6", "--runs", isic, "--over", "pooled", "--format", "markdown").out
    assert "|  | ours | 66.00 ± 1.00 |" in pooled


def test_a_round_that_is_not_said_and_the_time(command: Command, tmp_path: Path) -> None:
    pretend(tmp_path / "octa", "octa-500", figures={"dice": [0.8, 0.9]})
    said = _said(command("paper", "figure-19", "--runs", tmp_path / "octa").out)
    assert "feal paper 94.18 94.18 ours 80.00 90.00 diff. -14.18 -4.18" in said
    assert "does not say which round" in said
    pretend(tmp_path / "polyp", "fed-polyp", figures={"dice": [0.8, 0.9]}, seconds=[20.0, 90.0])
    said = _said(command("paper", "table-10", "--runs", tmp_path / "polyp").out)
    assert "feal paper 14.88 ours 20.00 diff. +5.12 seeds 1" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["tabel-2"], "did you mean 'table-2'?"),
        (["table-1", "--runs", "isic"], "is a run on fed-isic, and table-1 is about fed-polyp"),
        (["table-2", "--runs", "small"], "is no run of fed-isic, which table-2 is about (sites is"),
        (["table-5", "--runs", "isic"], "sizes of data sets, which are no run's"),
        (["figure-5", "--runs", "isic"], "prints no numbers of figure-5"),
        (["table-2", "--runs", "absent"], "There is no folder"),
        (["table-9", "--runs", "polyp"], "None of the runs is of a row of table-9"),
        (["table-2", "isic"], "run directories come after --runs"),
        (["--runs", "isic"], "--runs needs a table's name first"),
    ],
)
def test_mistakes(
    command: Command, isic: Path, words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(isic.parent)
    pretend(Path("small"), "fed-isic-small", figures={"balanced_accuracy": [0.5]})
    pretend(Path("polyp"), "fed-polyp", {"strategy": "random"}, figures={"dice": [0.5]})
    refused = command("paper", *words)
    assert refused.code == 2
    assert reason in refused.err
    assert refused.out == ""
