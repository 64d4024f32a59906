import json
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.experiment import start
from feal.experiment.sweeping import Job, Onlooker, carry_out
from tests.copies import copied, cut
from tests.runs import tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tiny(strategy="random"), out=tmp_path_factory.mktemp("runs") / "random" / "seed-0").folder


def test_a_finished_run_is_left_alone(run: Path) -> None:
    job = Job(run, tiny(strategy="random"))
    job.check()
    assert job.name == "random/seed-0"
    assert job.finished
    # Nothing is left to do, so no process is started either.
    assert carry_out([job], processes=1) == {}


def test_more_rounds_are_more_to_do(run: Path) -> None:
    job = Job(run, tiny(strategy="random", rounds=4))
    job.check()
    assert job.share == pytest.approx(2 / 4)
    assert Job(run, tiny(strategy="random", rounds=1)).finished


def test_an_unfinished_run_counts_as_far_as_it_is(run: Path, tmp_path: Path) -> None:
    copy = cut(copied(run, tmp_path / "copy"), rounds=1)
    job = Job(copy, tiny(strategy="random"))
    assert job.share == 0.5
    state = json.loads((copy / "state.json").read_text())
    (copy / "state.json").write_text(json.dumps({**state, "step": 1}))
    assert job.share == 0.75
    (copy / "state.json").write_text("{")
    assert job.share == 0.0
    assert Job(tmp_path / "absent", job.settings).share == 0.0


def test_a_run_whose_summary_is_missing_is_not_finished(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path / "copy")
    (copy / "summary.json").unlink()
    assert not Job(copy, tiny(strategy="random")).finished


def test_other_settings_are_refused_by_name_before_anything_begins(run: Path, tmp_path: Path) -> None:
    jobs = [Job(tmp_path / "new", tiny(strategy="random")), Job(run, tiny(strategy="random", budget=6))]
    with pytest.raises(FealError, match=f"{run} holds a run with other settings"):
        carry_out(jobs, processes=1)
    assert not (tmp_path / "new").exists()


def test_a_damaged_run_is_a_problem_of_its_own(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path / "copy")
    (copy / "config.yaml").write_text("dataset: [")
    job = Job(copy, tiny(strategy="random"))
    job.check()
    assert "is no YAML any more" in str(job.carry_out())


def test_a_taken_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty and holds no run" in str(Job(tmp_path, tiny(strategy="random")).carry_out())


def test_a_run_that_waits_for_labels_says_so(tmp_path: Path) -> None:
    problem = Job(tmp_path / "run", tiny(strategy="random", annotator="folder")).carry_out()
    assert problem == f"It waits for labels: `feal labels {tmp_path / 'run'}` says which."


@pytest.mark.slow
def test_jobs_are_carried_out_and_heard_of(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / str(seed), tiny(strategy="random", rounds=1, seed=seed)) for seed in range(2)]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").write_text("mine")
    heard: list[tuple[Path, bool]] = []
    shares: list[float] = []

    class Ear(Onlooker):
        def advanced(self, done: float, total: int, running: object) -> None:
            shares.append(done / total)

        def ended(self, job: Job, problem: str | None) -> None:
            heard.append((job.folder, problem is None))

    problems = carry_out(jobs, processes=2, onlooker=Ear())
    assert list(problems) == [tmp_path / "1"]
    assert sorted(heard) == [(tmp_path / "0", True), (tmp_path / "1", False)]
    assert shares == sorted(shares)
    assert jobs[0].finished
