"""`feal labels`: who answered what and when, and what is awaited."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from feal.annotation import Answer
from feal.data.images import read_mask
from feal.experiment import start
from feal.rundir.site_store import Store
from tests.command import Command
from tests.prepared import write_prepared
from tests.runs import tiny, tiny_polyps


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds, to be copied."""
    return start(tiny(), out=tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of two rounds."""
    return shutil.copytree(finished, tmp_path / "run")


def _store(run: Path, site: str = "alder") -> Store:
    return Store(run / "sites" / site / "site.sqlite")


def _say(run: Path, *labels: object, by: str = "Dr. B") -> list[str]:
    """Give these answers to alder's first samples of round 1; returns the samples."""
    store = _store(run)
    samples = [record.sample for record in store.records() if record.round == 1][: len(labels)]
    with store.transaction():
        store.add_answers([Answer(sample=s, label=label, by=by) for s, label in zip(samples, labels, strict=True)])
    store.close()
    return samples


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _figures(line: str) -> list[str]:
    return line.split()[:6]


def test_a_finished_run_with_a_correction(command: Command, run: Path) -> None:
    _say(run, None)
    shown = command("labels", run)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].strip() == "alder"
    assert lines[1].split()[:6] == ["round", "asked", "labels", "declined", "pending", "corrected"]
    assert _figures(lines[2]) == ["1", "5", "4", "1", "0", "1"]
    assert _figures(lines[3]) == ["2", "5", "5", "0", "0", "0"]
    assert "birch" in shown.out
    assert "annotation" not in shown.out
    assert max(map(len, lines)) <= 80


def test_one_site_only(command: Command, run: Path) -> None:
    shown = command("labels", run, "--site", "birch")
    assert "birch" in shown.out
    assert "alder" not in shown.out
    refused = command("labels", run, "--site", "brich")
    assert refused.code == 2
    assert "did you mean 'birch'" in refused.err


def test_what_is_awaited_and_refused_and_where(command: Command, tmp_path: Path) -> None:
    run = start(tiny(annotator="folder"), out=tmp_path / "run").folder
    place = run / "sites" / "alder" / "annotation" / "round-001"
    shown = command("labels", run)
    assert f"5 pending in round 1: {place}" in shown.out
    assert "refused" not in shown.out
    request = (place / "request.csv").read_text()
    sample = request.splitlines()[1].split(",")[0]
    (place / "answers.csv").write_text(f"sample,label\n{sample},0\nnobody,1\n")
    assert command("resume", run).code == 0
    shown = command("labels", run)
    assert f"4 pending in round 1: {place}" in shown.out
    assert f"rejected answers: {place.parent / 'rejected.csv'}" in shown.out


def test_export_has_every_answer_and_its_history(command: Command, run: Path, tmp_path: Path) -> None:
    state = json.loads((run / "state.json").read_text())
    first, second = _say(run, 4, None)
    _say(run, 3, by="Dr. C")
    exported = command("labels", run, "--export", tmp_path / "out")
    assert exported.code == 0, exported.err
    assert str(tmp_path / "out" / "labels.csv") in exported.out
    rows = _rows(tmp_path / "out")
    assert len(rows) == 2 * 2 * 5 + 3
    assert ",".join(rows[0]) == (
        "site,sample,round,rank,score,model,asked,label,class,mask,answered,by,corrected,superseded"
    )
    story = [row for row in rows if row["sample"] == first]
    assert [(row["label"], row["by"], row["superseded"]) for row in story[1:]] == [
        ("4", "Dr. B", "yes"),
        ("3", "Dr. C", ""),
    ]
    assert (story[0]["by"], story[0]["superseded"], story[2]["corrected"]) == ("oracle", "yes", "2")
    declined = next(row for row in rows if row["sample"] == second and not row["superseded"])
    assert (declined["label"], declined["class"]) == ("", "cannot be labelled")
    names = (state.get("facts") or {}).get("classes")
    assert story[2]["class"] == (names[3] if names else "")
    assert {row["model"] for row in rows if row["round"] == "1"} == {""}
    assert all(len(row["model"]) == 32 for row in rows if row["round"] == "2")


def test_class_names_come_from_the_runs_state(
    command: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = json.loads((run / "state.json").read_text())
    state["facts"]["classes"] = list("abcde")
    (run / "state.json").write_text(json.dumps(state))
    assert command("labels", run, "--export", tmp_path / "out").code == 0
    for row in _rows(tmp_path / "out"):
        assert row["class"] == "abcde"[int(row["label"])]


@pytest.mark.slow
def test_masks_are_exported_to_the_pixel(command: Command, tmp_path: Path) -> None:
    run = start(tiny_polyps(), out=tmp_path / "run").folder
    new = np.random.default_rng(0).integers(0, 2, (32, 32)).astype(np.uint8)
    store = _store(run)
    old = next(store.records()).label
    store.close()
    (sample,) = _say(run, new)
    assert command("labels", run, "--site", "alder", "--export", tmp_path / "out").code == 0
    rows = _rows(tmp_path / "out")
    masks = [
        read_mask(tmp_path / "out" / row["mask"], shape=(32, 32), classes=2)
        for row in rows
        if row["sample"] == sample
    ]
    assert np.array_equal(masks[0], old)
    assert np.array_equal(masks[1], new)
    assert len({row["mask"] for row in rows}) == len(rows) == 7
    assert {row["mask"].split("/")[1] for row in rows} == {"alder"}


def test_an_export_never_mixes_with_something_else(command: Command, run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert command("labels", run, "--export", tmp_path / "out").code == 0
    before = (tmp_path / "out" / "labels.csv").read_bytes()
    for taken in (tmp_path / "out", run / "config.yaml"):
        refused = command("labels", run, "--export", taken)
        assert refused.code == 2
        assert "not empty" in refused.err
    assert (tmp_path / "out" / "labels.csv").read_bytes() == before


def test_looking_changes_no_file(command: Command, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert command("labels", run).code == 0
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_no_run_and_a_run_without_questions(command: Command, run: Path, tmp_path: Path) -> None:
    refused = command("labels", tmp_path)
    assert refused.code == 2
    assert "holds no run" in refused.err
    for path in run.glob("sites/*/site.sqlite"):
        path.unlink()
    assert "has not requested any label yet" in command("labels", run).out


def test_a_damaged_store_is_said(command: Command, run: Path) -> None:
    (run / "sites" / "alder" / "site.sqlite").write_bytes(b"no database" * 200)
    refused = command("labels", run)
    assert refused.code == 2
    assert "site.sqlite cannot be used" in refused.err


def test_a_deployed_sites_own_folder(command: Command, tmp_path: Path) -> None:
    place = tmp_path / "alder"
    (place / "state" / "runs").mkdir(parents=True)
    (place / "site.yaml").write_text("name: alder\ncoordinator: hub.example.org:9092\n")
    for folder in (place, place / "state"):
        assert "has not taken part in a run yet" in command("labels", folder).out
    data = write_prepared(tmp_path / "prepared")
    for number in (1, 2):
        settings = tiny(dataset=str(data), rounds=1, communication_rounds=1, seed=number)
        run = start(settings, out=place / "state" / "runs" / f"{number:032}").folder
        for path in (run / "state.json", run / "sites" / "birch" / "site.sqlite"):
            path.unlink()  # which are not this site's
        assert command("labels", place, "--export", tmp_path / str(number)).code == (0 if number == 1 else 2)
    assert {row["class"] for row in _rows(tmp_path / "1")} <= {"red", "green", "blue"}
    shown = command("labels", place / "state")
    assert shown.code == 0, shown.err
    assert [line for line in shown.out.splitlines() if "0001" in line or "0002" in line] == [
        str(place / "state" / "runs" / f"{number:032}") for number in (1, 2)
    ]
    assert "holds 2 runs: name the one to export" in command("labels", place, "--export", tmp_path / "2").err
    assert command("labels", place / "state" / "runs" / f"{2:032}", "--export", tmp_path / "2").code == 0
