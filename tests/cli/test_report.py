from pathlib import Path

from feal.experiment import start
from tests.command import Command
from tests.copies import copied, cut
from tests.runs import tiny


def test_a_report_is_written_and_its_answer_printed(command: Command, tmp_path: Path) -> None:
    run = start(tiny(rounds=2, communication_rounds=1), out=tmp_path / "runs" / "one").folder
    copied(run, tmp_path / "runs" / "two", strategy="random", loss="plain")
    cut(copied(run, tmp_path / "runs" / "three", seed=1), rounds=1)
    log = tmp_path / "runs" / "two" / "metrics.jsonl"
    log.write_bytes(b"x" + log.read_bytes()[1:])
    out = tmp_path / "report.html"
    ended = command("report", tmp_path / "runs", "-o", out)
    assert ended.code == 0, ended.err
    assert "random selection in balanced accuracy, but on a single seed" in " ".join(ended.out.split())
    assert "1 run of 3 is not finished" in ended.out
    assert "line 1: no record" in " ".join(ended.out.split())
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_a_folder_without_runs_is_refused(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    for words, why in (
        (["report", tmp_path, "-o", out], "holds no run"),
        (["report", tmp_path / "absent", "-o", out], "There is no directory"),
        (["watch", tmp_path / "absent"], "There is no directory"),
    ):
        ended = command(*words)
        assert ended.code == 2
        assert why in ended.err
    assert not out.exists()
