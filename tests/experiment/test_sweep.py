import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from feal.config import load
from feal.errors import FealError
from feal.experiment import start
from feal.experiment.sweep import SweepRun, plan_sweep, read_grid, run_sweep
from feal.settings import Settings
from tests.copies import copied, cut
from tests.runs import tiny

OWN = """
from typing import Literal
from feal.selection.strategies.entropy import Entropy
class Mine(Entropy):
    class Params(Entropy.Params):
        query_model: Literal["global", "local"] = "global"
"""


def _plan(preset: str, words: list[str]) -> Mapping[str, Settings]:
    return plan_sweep(preset, read_grid(words)).runs


def test_every_valid_combination_has_a_readable_name() -> None:
    found = _plan(
        "demo",
        ["strategy=feal,entropy,random,full,kafal,logo", "strategy.query_model=global,local,ensemble", "seed=0,1"],
    )
    once = [f"{name}/seed-{seed}" for name in ("feal", "random", "full", "kafal", "logo") for seed in (0, 1)]
    thrice = [f"entropy-{model}/seed-{seed}" for model in ("global", "local", "ensemble") for seed in (0, 1)]
    assert sorted(found) == sorted([*once, *thrice])
    settings = found["entropy-ensemble/seed-1"]
    assert (settings.strategy.name, settings.query_model, settings.seed) == ("entropy", "ensemble", 1)
    assert found["random/seed-0"].query_model is None


def test_what_has_several_values_is_in_the_name_and_what_has_one_is_not() -> None:
    found = _plan("demo", ["strategy=feal", "strategy.tau=0.5,0.85", "budget=8", "training.lr=1e-3"])
    assert list(found) == ["feal-tau=0.5/seed-0", "feal-tau=0.85/seed-0"]
    assert {(settings.budget, settings.training.lr) for settings in found.values()} == {(8, 1e-3)}


def test_lists_are_values_too() -> None:
    found = _plan("demo", ["strategy.terms=[aleatoric-global,aleatoric-local],[aleatoric-local]"])
    assert {name: settings.strategy.params["terms"] for name, settings in found.items()} == {
        "feal-terms=aleatoric-global+aleatoric-local/seed-0": ["aleatoric-global", "aleatoric-local"],
        "feal-terms=aleatoric-local/seed-0": ["aleatoric-local"],
    }
    assert list(_plan("demo", ["sites=[alder,birch]"])) == ["feal/seed-0"]


def test_what_comes_to_the_same_runs_once() -> None:
    assert list(_plan("demo", ["strategy=full,random", "budget=4,8", "seed=3,3"])) == [
        "full-budget=all/seed-3",
        "random-budget=4/seed-3",
        "random-budget=8/seed-3",
    ]


def test_a_strategy_without_a_parameter_runs_once() -> None:
    words = ["strategy=feal,random,full,gradnorm", "strategy.n=3,9", "strategy.scope=all,head", "seed=0,1"]
    plan = plan_sweep("demo", read_grid(words))
    feal = [f"feal-n={n}" for n in (3, 9)]
    gradnorm = [f"gradnorm-global-scope={scope}" for scope in ("all", "head")]
    arms = [*feal, "random", "full", *gradnorm]
    assert sorted(plan.runs) == sorted(f"{arm}/seed-{seed}" for arm in arms for seed in (0, 1))
    assert plan.runs["random/seed-0"] == load("demo", {"strategy": "random"})
    assert plan.notes == ()


def test_a_loss_without_a_parameter_runs_once() -> None:
    plan = plan_sweep("demo", read_grid(["strategy=random", "loss=plain,evidential", "loss.lambda=0.1,0.2"]))
    assert list(plan.runs) == [
        "random-loss=plain/seed-0",
        "random-loss=evidential-loss.lambda=0.1/seed-0",
        "random-loss=evidential-loss.lambda=0.2/seed-0",
    ]
    assert plan.notes == ()


def test_a_combination_that_is_not_valid_is_left_out_and_counted() -> None:
    plan = plan_sweep(
        "demo", read_grid(["training.trainable=all,head", "weights=none,imagenet", "model=efficientnet-b0"])
    )
    assert list(plan.runs) == [
        "feal-training.trainable=all-weights=none/seed-0",
        "feal-training.trainable=all-weights=imagenet/seed-0",
        "feal-training.trainable=head-weights=imagenet/seed-0",
    ]
    (note,) = plan.notes
    assert note.startswith("1 combination is left out as not valid, such as training.trainable=head weights=none")
    assert "freezes weights that were never trained" in note


def test_a_preset_s_query_model_is_for_strategies_that_take_it(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text(
        "dataset: synthetic-lesions\nmodel: tiny-cnn\nstrategy: {name: entropy, query_model: local}\n"
    )
    assert list(_plan(str(preset), ["strategy=entropy,random"])) == [
        "entropy-local/seed-0",
        "random/seed-0",
    ]
    assert list(_plan(str(preset), [])) == ["entropy-local/seed-0"]


def test_a_query_model_that_a_strategy_does_not_take_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    own = f"strategy={tmp_path}/mine.py:Mine"
    both, models = f"{own},entropy", ("global", "ensemble", "local")
    assert list(_plan("demo", [both, "strategy.query_model=global,ensemble,local"])) == [
        "Mine-global/seed-0",
        "Mine-local/seed-0",
        *(f"entropy-{model}/seed-0" for model in models),
    ]
    with pytest.raises(
        FealError, match="strategy.query_model=ensemble is not valid: it should be 'global' or 'local'"
    ):
        _plan("demo", [own, "strategy.query_model=ensemble"])


def test_strategies_of_the_same_name_keep_apart(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(OWN)
    found = _plan("demo", [f"strategy={tmp_path}/one.py:Mine,{tmp_path}/other.py:Mine"])
    assert len(found) == 2
    assert all(name.startswith("Mine-global/seed-0-") for name in found)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("[a,b]", [["a", "b"]]),
        ("[a,b],[c,[d,e]]", [["a", "b"], ["c", ["d", "e"]]]),
        ("{a: 1, b: 2},3", [{"a": 1, "b": 2}, 3]),
        ("'a,b',\"c,d\"", ["a,b", "c,d"]),
        ("['a]',b],c", [["a]", "b"], "c"]),
        ("it's,that's", ["it's", "that's"]),
        ("1e-3,2E+4,0.5", [1e-3, 2e4, 0.5]),
        ("mine.py:One,/my/own.py:Other", ["mine.py:One", "/my/own.py:Other"]),
        ("null,true,all", [None, True, "all"]),
    ],
)
def test_commas_inside_brackets_and_quotes_belong_to_a_value(text: str, values: list[object]) -> None:
    assert read_grid([f"key={text}"]) == {"key": values}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=0,,1"], "'seed=0,,1' lacks a value"),
        (["seed="], "'seed=' lacks a value"),
        (["seed=1,"], "'seed=1,' lacks a value"),
        (["seed= ,1"], "'seed= ,1' lacks a value"),
        (["seed=0", "seed=1"], "seed is given twice: write all its values at once"),
        (["seed"], "'seed' is no setting"),
        (["sites=[a,b"], "are not closed"),
        (["strategy='feal"], "are not closed"),
        (["strategy=faal,random"], "did you mean 'feal'"),
        (["sede=0,1"], "did you mean 'seed'"),
        (["strategy=entropy", "strategy.query_model=global,locl"], "strategy.query_model=locl is not valid"),
        (["strategy=feal", "strategy.query_model=local"], "Strategy feal has no parameter 'query_model'"),
        (["strategy=feal,random", "strategy.scope=all"], "Strategy feal has no parameter 'scope'"),
        (["strategy=gradnorm,random", "strategy.scope=all,some"], "strategy.scope=some is not valid"),
        (["seed=0,one"], "seed=one in the overrides is not valid"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(FealError, match=said):
        _plan("demo", words)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tiny(strategy="random"), out=tmp_path_factory.mktemp("runs") / "random" / "seed-0").folder


def test_a_finished_run_is_left_alone(run: Path) -> None:
    job = SweepRun(run, tiny(strategy="random"))
    job.check_directory()
    assert job.name == "random/seed-0"
    assert job.is_finished
    # Nothing is left to do, so no process is started either.
    assert run_sweep([job], processes=1) == {}


def test_more_rounds_are_more_to_do(run: Path) -> None:
    job = SweepRun(run, tiny(strategy="random", rounds=4))
    job.check_directory()
    assert job.share == pytest.approx(2 / 4)
    assert SweepRun(run, tiny(strategy="random", rounds=1)).is_finished


def test_an_unfinished_run_counts_as_far_as_it_is(run: Path, tmp_path: Path) -> None:
    copy = cut(copied(run, tmp_path / "copy"), rounds=1)
    job = SweepRun(copy, tiny(strategy="random"))
    assert job.share == 0.5
    state = json.loads((copy / "state.json").read_text())
    (copy / "state.json").write_text(json.dumps({**state, "step": 1}))
    assert job.share == 0.75
    (copy / "state.json").write_text("{")
    assert job.share == 0.0
    assert SweepRun(tmp_path / "absent", job.settings).share == 0.0


def test_a_run_whose_summary_is_missing_is_not_finished(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path / "copy")
    (copy / "summary.json").unlink()
    assert not SweepRun(copy, tiny(strategy="random")).is_finished


def test_other_settings_are_refused_by_name_before_anything_begins(run: Path, tmp_path: Path) -> None:
    jobs = [SweepRun(tmp_path / "new", tiny(strategy="random")), SweepRun(run, tiny(strategy="random", budget=6))]
    with pytest.raises(FealError, match=f"{run} holds a run with other settings"):
        run_sweep(jobs, processes=1)
    assert not (tmp_path / "new").exists()


def test_a_damaged_run_is_a_problem_of_its_own(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path / "copy")
    (copy / "config.yaml").write_text("dataset: [")
    job = SweepRun(copy, tiny(strategy="random"))
    job.check_directory()
    assert "is not valid YAML" in str(job.execute())


def test_a_taken_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty and holds no run" in str(SweepRun(tmp_path, tiny(strategy="random")).execute())


def test_a_run_that_waits_for_labels_says_so(tmp_path: Path) -> None:
    problem = SweepRun(tmp_path / "run", tiny(strategy="random", annotator="folder")).execute()
    assert problem == f"It is waiting for labels: `feal labels {tmp_path / 'run'}` shows which."


@pytest.mark.slow
def test_jobs_are_carried_out_and_heard_of(tmp_path: Path) -> None:
    jobs = [SweepRun(tmp_path / str(seed), tiny(strategy="random", rounds=1, seed=seed)) for seed in range(2)]
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").write_text("mine")
    heard: list[tuple[Path, bool]] = []
    shares: list[float] = []

    class Listener:
        def on_progress(self, done: float, total: int, running: object) -> None:
            shares.append(done / total)

        def on_run_end(self, run: SweepRun, problem: str | None) -> None:
            heard.append((run.folder, problem is None))

    problems = run_sweep(jobs, processes=2, callback=Listener())
    assert list(problems) == [tmp_path / "1"]
    assert sorted(heard) == [(tmp_path / "0", True), (tmp_path / "1", False)]
    assert shares == sorted(shares)
    assert jobs[0].is_finished
