"""Runs whose labels come from people: partly, wrongly, twice, late, with corrections."""

import csv
import shutil
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pytest

import feal
from feal.data import PreparedSet
from feal.experiment import Result, resume, start
from feal.federation.callbacks import NullCallback
from tests.command import Command
from tests.people import answer_all, data_of, requests, truth, write_answers
from tests.runs import fingerprint, tiny, tiny_polyps

ONE = {"rounds": 1, "communication_rounds": 1}


def _answer_until_finished(run: Path, data: PreparedSet) -> Result:
    for _ in range(9):
        answer_all(run, data)
        result = feal.resume(run)
        if result.status == "finished":
            return result
    pytest.fail("the run never ends")


def _rows(run: Path, site: str, columns: str, table: str = "labels") -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "sites" / site / "site.sqlite") as connection:
        rows = connection.execute(f"SELECT {columns} FROM {table} ORDER BY sample").fetchall()
    connection.close()
    return rows


def _refused(run: Path, site: str) -> list[dict[str, str]]:
    with (run / "sites" / site / "annotation" / "rejected.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "settings", [tiny, pytest.param(tiny_polyps, marks=pytest.mark.slow)], ids=["classification", "segmentation"]
)
def test_true_answers_give_what_the_oracle_gives(settings: type, tmp_path: Path) -> None:
    oracle = start(settings(), out=tmp_path / "oracle")
    people = start(settings(annotator="folder"), out=tmp_path / "people")
    assert (people.status, people.rounds) == ("waiting", ())
    people = _answer_until_finished(people.folder, data_of(settings()))
    one, other = fingerprint(oracle.folder), fingerprint(people.folder)
    weights = [name for name in one if name.startswith("weights/")]
    assert len(weights) == 3
    assert all(one[name] == other[name] for name in [*weights, *(n for n in one if "selections" in n)])
    for site in ("alder", "birch"):
        columns = "sample, round, label, mask"
        assert _rows(oracle.folder, site, columns) == _rows(people.folder, site, columns)


def test_a_run_that_waits_is_finished_with_exit_code_0_and_says_what_is_asked(
    command: Command, tmp_path: Path
) -> None:
    run = start(tiny(annotator="folder", **ONE), out=tmp_path / "run").folder
    ended = command("resume", run)
    assert ended.code == 0
    assert "is waiting for labels" in ended.out
    assert "sites/birch/annotation/round-001" in ended.out
    assert "waiting for labels" in command("show", run).out
    assert feal.resume(run).status == "waiting"


def test_partly_wrongly_twice_late_and_corrected(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", **{"annotator.min_share": 0.6})
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    birch = requests(run, site="birch")
    answer_all(run, data)
    first, second, third, fourth, fifth = birch
    right = {asked.sample: truth(data, asked) for asked in birch}

    # Wrongly, and too few: what is right is kept at once.
    wrong = [("nobody", 1), (first.sample, 99), (second.sample, right[second.sample]), (third.sample, "cannot")]
    write_answers(first.folder, wrong)
    assert feal.resume(run).status == "waiting"
    assert [(row["sample"], "line" in row["where"]) for row in _refused(run, "birch")] == [
        ("nobody", True),
        (first.sample, True),
    ]
    assert len(_rows(run, "alder", "sample")) == 5
    assert sorted(row[0] for row in _rows(run, "birch", "sample", "labels WHERE answered IS NOT NULL")) == sorted(
        [second.sample, third.sample]
    )

    # Twice: the last line counts. Three of five are enough, and the sheet may be gone afterwards.
    other = (right[fourth.sample] + 1) % 5
    write_answers(first.folder, [(fourth.sample, other), (fourth.sample, right[fourth.sample])], by="bea")
    result = feal.resume(run)
    assert result.status == "waiting"
    assert result.rounds[0].labels == {"alder": 5, "birch": 2}
    (first.folder / "answers.csv").unlink()

    # Late and corrected: the answers to round 1 count from round 2 on.
    answer_all(run, data)
    late = [(first.sample, right[first.sample]), (second.sample, (right[second.sample] + 1) % 5)]
    write_answers(first.folder, late, by="cid")
    result = feal.resume(run)
    assert result.status == "finished"
    assert result.rounds[1].labels == {"alder": 10, "birch": 8}

    held = {str(row[0]): row[1:] for row in _rows(run, "birch", "sample, label, answered_by, corrected")}
    assert held[first.sample] == (right[first.sample], "cid", 0)
    assert held[second.sample] == ((right[second.sample] + 1) % 5, "cid", 1)
    assert held[third.sample] == (None, "ann", 0)
    assert held[fourth.sample] == (right[fourth.sample], "bea", 0)
    assert held[fifth.sample] == (None, None, 0)
    superseded = _rows(run, "birch", "sample, label, answered_by", "superseded")
    assert superseded == [(second.sample, right[second.sample], "ann")]


def test_an_answer_after_the_last_question_is_still_noted(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", **{"annotator.min_share": 0.5}, **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    for site in ("alder", "birch"):
        asked = requests(run, site=site)
        write_answers(asked[0].folder, [(one.sample, truth(data, one)) for one in asked[:3]])

    class Late(NullCallback):
        def on_step(self, **details: object) -> None:
            answer_all(run, data)

    result = resume(run, callback=Late())
    assert result.status == "finished"
    assert result.rounds[0].labels == {"alder": 3, "birch": 3}
    assert len(_rows(run, "birch", "sample", "labels WHERE answered IS NOT NULL")) == 5


def test_min_share_may_be_lowered_on_the_way(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    for site in ("alder", "birch"):
        asked = requests(run, site=site)[0]
        write_answers(asked.folder, [(asked.sample, truth(data, asked))])
    assert feal.resume(run).status == "waiting"
    result = feal.resume(run, **{"annotator.min_share": 0.2})
    assert result.rounds[0].labels == {"alder": 1, "birch": 1}


def test_a_site_whose_labels_are_pending_holds_nobody_up_beyond_the_quorum(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", quorum=1, **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    asked = requests(run, site="alder")
    write_answers(asked[0].folder, [(one.sample, truth(data, one)) for one in asked])
    result = feal.resume(run)
    assert result.status == "finished"
    assert result.rounds[0].labels == {"alder": 5, "birch": 0}


def test_a_waiting_run_can_be_moved(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    answer_all(run, data)
    moved = tmp_path / "elsewhere" / "moved"
    shutil.copytree(run, moved)
    shutil.rmtree(run)
    assert feal.resume(moved).status == "finished"


def test_waiting_looks_until_the_answers_are_there(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(annotator="folder", **ONE)
    run = start(settings, out=tmp_path / "run").folder
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            answer_all(run, data_of(settings))

    monkeypatch.setattr("feal.experiment.run.time.sleep", nap)
    ended = command("resume", run, "--wait", "annotator.poll_seconds=2.5")
    assert ended.code == 0
    assert naps == [2.5] * 3
    assert ended.out.count("Labels for round 1") == 2
    assert "The run is finished" in ended.out


@pytest.mark.slow
def test_a_drawn_mask_comes_back_pixel_by_pixel(tmp_path: Path) -> None:
    settings = tiny_polyps(annotator="folder")
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    answer_all(run, data)
    assert feal.resume(run).status == "waiting"
    drafts = [asked for asked in requests(run, round_=2) if (asked.folder / "drafts" / asked.picture).exists()]
    assert len(drafts) == 6
    answer_all(run, data)
    feal.resume(run)
    for site in ("alder", "birch"):
        for sample, mask, height, width in _rows(run, site, "sample, mask, height, width"):
            pixels = np.frombuffer(zlib.decompress(mask), np.uint8).reshape(height, width)
            asked = next(asked for asked in requests(run, site=site) if asked.sample == sample)
            assert np.array_equal(pixels, truth(data, asked))


def test_a_finished_run_takes_late_answers_in_and_counts_them_once_it_is_extended(
    command: Command, tmp_path: Path
) -> None:
    settings = tiny(annotator="folder", **{"annotator.min_share": 0.4}, **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    for site in ("alder", "birch"):
        asked = requests(run, site=site)
        write_answers(asked[0].folder, [(one.sample, truth(data, one)) for one in asked[:2]])
    assert feal.resume(run).status == "finished"
    answer_all(run, data)
    assert "count once it is extended" in command("resume", run).out
    assert len(_rows(run, "birch", "sample", "labels WHERE answered IS NOT NULL")) == 5
    assert feal.resume(run).rounds[0].labels == {"alder": 2, "birch": 2}
    feal.resume(run, rounds=2)
    answer_all(run, data)
    extended = feal.resume(run)
    assert [record.labels for record in extended.rounds] == [
        {"alder": 2, "birch": 2},
        {"alder": 10, "birch": 10},
    ]


def test_a_label_that_is_taken_back_while_another_site_fails_locks_nothing(tmp_path: Path) -> None:
    settings = tiny(annotator="folder", **ONE)
    data, run = data_of(settings), start(settings, out=tmp_path / "run").folder
    asked = requests(run, site="alder")
    rows = [(one.sample, truth(data, one)) for one in asked]
    write_answers(asked[0].folder, rows)
    assert feal.resume(run).status == "waiting"
    write_answers(asked[0].folder, [(rows[0][0], "cannot"), *rows[1:]])
    birch = run / "sites" / "birch" / "site.sqlite"
    birch.rename(birch.with_suffix(".away"))
    birch.mkdir()
    with pytest.raises(feal.FealError, match="birch"):
        feal.resume(run)
    birch.rmdir()
    birch.with_suffix(".away").rename(birch)
    answer_all(run, data)
    write_answers(asked[0].folder, [(rows[0][0], "cannot"), *rows[1:]])
    assert feal.resume(run).rounds[0].labels == {"alder": 4, "birch": 5}
