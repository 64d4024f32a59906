from feal.analysis.arms import arms_of
from tests.analysis.made import ENTROPY, FULL, RANDOM, made


def test_arms_stand_as_in_the_paper() -> None:
    feal = made("feal", 0, (0.1, 0.2, 0.3))
    others = [made("entropy", 0, (0.1,), query_model=model) for model in ("ensemble", "global")]
    arms = arms_of([feal, *ENTROPY, *RANDOM, *others, made("badge", 0, (0.1,)), *FULL])
    assert [arm.name for arm in arms] == [
        "full", "random", "badge global", "entropy global", "entropy local", "entropy ensemble", "feal",
    ]  # fmt: skip
    assert [arm.bound for arm in arms] == [True, *[False] * 6]
    entropy = arms[4]
    assert (entropy.strategy, entropy.query_model, entropy.apart, entropy.loss) == (
        "entropy",
        "local",
        "",
        "plain",
    )


def test_what_tells_arms_apart_is_said_once() -> None:
    runs = [made("entropy", 0, (0.1,), loss=loss) for loss in ("plain", "balanced")]
    assert [(arm.strategy, arm.query_model, arm.apart) for arm in arms_of(runs)] == [
        ("entropy", "global", "balanced"),
        ("entropy", "global", "plain"),
    ]
    runs = [made("random", 0, (0.1,), budget=budget) for budget in (3, 5)]
    assert [arm.apart for arm in arms_of(runs)] == ["plain, budget=3", "plain, budget=5"]


def test_an_unfinished_run_is_left_out_beside_finished_ones_and_said() -> None:
    running = made("random", 2, (0.9,), stage="train")
    (arm,) = arms_of([*RANDOM, running])
    assert [curve.seed for curve in arm.curves] == [0, 1]
    assert arm.remarks() == ["random is unfinished: seed 2 (1 of 3 rounds); left out, as others are finished."]
    (alone,) = arms_of([made("random", 2, (0.9,), stage="waiting")])
    assert not alone.finished
    assert [curve.seed for curve in alone.curves] == [2]
    assert alone.whole == ()
    assert alone.remarks() == [
        "random is unfinished: seed 2 (1 of 3 rounds, waits for labels); shown as far as it is."
    ]


def test_a_run_that_lacks_a_round_is_not_whole_whichever_it_is() -> None:
    for missing in (1, 2, 3):
        broken = made("random", 2, (0.1, 0.2, 0.3), missing=missing, problems=("line 7",))
        (arm,) = arms_of([*RANDOM, broken])
        assert [curve.seed for curve in arm.curves] == [0, 1, 2]
        assert [curve.seed for curve in arm.whole] == [0, 1]
        assert arm.remarks() == ["line 7"]
