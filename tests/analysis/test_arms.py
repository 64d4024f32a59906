from dataclasses import replace

from feal.analysis.arms import make_arms, resolve_measure
from feal.rundir.records import MetricValue
from tests.analysis.made import ENTROPY, FULL, RANDOM, made


def test_arms_stand_as_in_the_paper() -> None:
    feal = made("feal", 0, (0.1, 0.2, 0.3))
    others = [made("entropy", 0, (0.1,), **{"strategy.query_model": model}) for model in ("ensemble", "global")]
    arms = make_arms([feal, *ENTROPY, *RANDOM, *others, made("badge", 0, (0.1,)), *FULL])
    assert [arm.name for arm in arms] == [
        "full", "random", "badge global", "entropy global", "entropy local", "entropy ensemble", "feal",
    ]  # fmt: skip
    assert [arm.is_full for arm in arms] == [True, *[False] * 6]
    entropy = arms[4]
    assert (entropy.strategy, entropy.query_model, entropy.differences, entropy.loss) == (
        "entropy",
        "local",
        "",
        "plain",
    )


def test_what_tells_arms_apart_is_said_once() -> None:
    runs = [made("entropy", 0, (0.1,), loss=loss) for loss in ("plain", "balanced")]
    assert [(arm.strategy, arm.query_model, arm.differences) for arm in make_arms(runs)] == [
        ("entropy", "global", "balanced"),
        ("entropy", "global", "plain"),
    ]
    runs = [made("random", 0, (0.1,), budget=budget) for budget in (3, 5)]
    assert [arm.differences for arm in make_arms(runs)] == ["plain, budget=3", "plain, budget=5"]


def test_an_unfinished_run_is_left_out_beside_finished_ones_and_said() -> None:
    running = made("random", 2, (0.9,), stage="train")
    (arm,) = make_arms([*RANDOM, running])
    assert [run.settings.seed for run in arm.counted_runs] == [0, 1]
    assert arm.remarks() == ["random is unfinished: seed 2 (1 of 3 rounds); left out, as others are finished."]
    (alone,) = make_arms([made("random", 2, (0.9,), stage="waiting")])
    assert not alone.is_finished
    assert alone.counted_runs == alone.runs
    assert not alone.runs[0].is_complete
    assert alone.remarks() == [
        "random is unfinished: seed 2 (1 of 3 rounds, waiting for labels); shown up to their last complete round."
    ]


def test_a_run_that_lacks_a_round_is_not_whole_whichever_it_is() -> None:
    for missing in (1, 2, 3):
        broken = made("random", 2, (0.1, 0.2, 0.3), missing=missing, problems=("line 7",))
        (arm,) = make_arms([*RANDOM, broken])
        assert [run.settings.seed for run in arm.counted_runs] == arm.seeds == [0, 1, 2]
        assert [run.is_complete for run in arm.runs] == [True, True, False]
        assert arm.remarks() == ["line 7"]


def test_a_user_s_metric_keeps_the_direction_that_its_class_declares() -> None:
    run = made("random", 0, (0.2, 0.3, 0.4))
    assert not resolve_measure(make_arms([run]), "balanced_accuracy").lower_is_better
    assert resolve_measure(make_arms([run]), "hd95").lower_is_better
    events = [
        record.model_copy(
            update={
                "metrics": {"brier": MetricValue(pooled=0.5, mean=0.5, lower_is_better=True), **record.metrics}
            }
        )
        for record in run.rounds
    ]
    measure = resolve_measure(make_arms([replace(run, events=tuple(events))]), "brier", over="mean")
    assert (measure.lower_is_better, measure.sign) == (True, -1)
