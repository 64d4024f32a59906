from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from feal.analysis.arms import make_arms
from feal.analysis.compare import compare_arms
from feal.analysis.conclusions import describe_best_arm, describe_verdict, draw_conclusions
from feal.analysis.runs import Run
from tests.analysis.made import made
from tests.records import record, run

DIAGNOSTICS = {"recall": [0.5, 0.5, 0.5]}


def _run(
    strategy: str, figures: Sequence[float], *, seed: int = 0, stage: str = "finished", **changes: str
) -> Run:
    """A run of two sites with 5, 10, ... labels each on average, and these pooled figures."""
    rounds = [record(number, accuracy=figure) for number, figure in enumerate(figures, start=1)]
    changes |= {"budget": "all"} if strategy == "full" else {}
    made = run(strategy, rounds, seed=seed, stage=stage, **changes)
    return replace(made, state=replace(made.state, round=len(figures)))


RANDOM = [_run("random", [0.4, 0.5, 0.6], seed=seed) for seed in range(5)]


def test_a_strategy_that_beats_random_on_every_seed() -> None:
    better = [_run("feal", [0.4, 0.7 + 0.01 * seed, 0.8], seed=seed) for seed in range(5)]
    found = draw_conclusions([*RANDOM, *better])
    # Means of rounds 2 and 3: 0.76 over seeds against 0.55, pairs 0.2 to 0.22 apart.
    assert found.headline == "feal beats random selection by 0.210 in balanced accuracy."
    sure, saved = found.facts
    low, high = stats.ttest_1samp((0.2, 0.205, 0.21, 0.215, 0.22), 0).confidence_interval(0.95)
    assert sure == (
        "Certainty: beyond the noise. feal differs from random by +0.210 "
        f"({low:+.3f} to {high:+.3f}, 95 % interval, 5 paired seeds)."
    )
    # 0.6 lies between 5 labels (0.4) and 10 (0.72), at 5 + 5 * 0.2 / 0.32 = 8.125.
    assert saved.startswith(
        "Labels saved: 7 per site (46%). feal needs 8 to reach the last value of random (15 labels per site)"
    )
    assert [(one.arm.name, describe_verdict(one.difference), one.n) for one in found.results] == [
        ("feal", "better", 5),
        ("random", "-", 5),
    ]


def test_two_seeds_that_agree_are_few() -> None:
    better = [_run("feal", [0.4, 0.7 + 0.04 * seed, 0.8], seed=seed) for seed in range(2)]
    found = draw_conclusions([*RANDOM[:2], *better])
    assert found.headline == (
        "feal is 0.210 above random selection in balanced accuracy (2 seeds: weak evidence)."
    )
    assert describe_verdict(found.results[0].difference) == "better, few seeds"
    assert found.facts[0].endswith("2 paired seeds: weak evidence).")


def test_a_difference_within_the_noise_is_called_so() -> None:
    shaky = [_run("feal", [0.4, 0.5 + 0.1 * (-1) ** seed, 0.62], seed=seed) for seed in range(4)]
    found = draw_conclusions([*RANDOM, *shaky])
    assert found.headline == (
        "No strategy is shown to beat random selection: the best, feal, is 0.010 above it in balanced accuracy, "
        "within the noise."
    )
    assert found.facts[0].startswith("Certainty: within the noise.")
    assert "but within the noise" in found.facts[1]
    assert any("only random has 4" in caution for caution in found.cautions)


def test_random_may_be_the_best() -> None:
    worse = [_run("feal", [0.4, 0.3, 0.3], seed=seed) for seed in range(5)]
    found = draw_conclusions([*RANDOM, *worse])
    assert found.headline == (
        "Random selection beats every strategy: the best of them, feal, is 0.250 below it in balanced accuracy."
    )
    assert found.facts[0].startswith("Certainty: worse, beyond the noise.")
    assert "feal never reaches the last value of random (15" in found.facts[1]


def test_less_than_half_a_label_is_none() -> None:
    alike = [_run("feal", [0.4, 0.5, 0.601], seed=seed) for seed in range(5)]
    assert draw_conclusions([*RANDOM, *alike]).facts[1] == (
        "Labels saved: none. feal needs as many to reach the last value of random (15 labels per site)."
    )


def test_one_seed_says_little() -> None:
    found = draw_conclusions([RANDOM[0], _run("feal", [0.4, 0.9, 0.9])])
    assert found.headline.startswith(
        "feal is 0.350 above random selection in balanced accuracy, but on a single seed"
    )
    assert found.facts[0].startswith("Certainty: none.")
    assert describe_verdict(found.results[0].difference) == "one seed"


def test_the_best_of_several_is_said_to_be_chosen() -> None:
    better = [_run("feal", [0.4, 0.9, 0.9], seed=seed) for seed in range(5)]
    worse = [_run("badge", [0.4, 0.1, 0.1], seed=seed) for seed in range(5)]
    found = draw_conclusions([*RANDOM, *better, *worse])
    assert found.headline.startswith("feal beats")
    assert "97.5 % interval as the best of 2" in found.facts[0]
    assert [result.arm.name for result in found.results] == ["feal", "random", "badge global"]


def test_what_is_shown_stands_before_what_seems_larger() -> None:
    """badge's mean is the higher one, but its seeds do not agree, and one seed of logo's is the highest."""
    surely = [_run("feal", [0.4, 0.6, 0.7], seed=seed) for seed in range(5)]
    perhaps = [_run("badge", [0.4, 0.7 + 0.5 * (-1) ** seed, 0.6], seed=seed) for seed in range(5)]
    found = draw_conclusions([*RANDOM, *surely, *perhaps, _run("logo", [0.4, 0.9, 0.9])])
    assert found.headline == "feal beats random selection by 0.100 in balanced accuracy."
    verdicts = {result.arm.name: describe_verdict(result.difference) for result in found.results}
    assert verdicts == {
        "feal": "better",
        "badge global": "within the noise",
        "logo": "one seed",
        "random": "-",
    }
    assert found.facts[-1].startswith(
        "logo has the highest balanced accuracy of all, 0.900 against 0.650 for feal"
    )


def test_the_best_of_many_is_not_said_to_win_by_what_chance_gives_one_of_them() -> None:
    """One alone by so much is beyond the noise; one of ten is not: t of 99.5 % with 4 degrees is 5.6."""
    lead = [
        _run("logo", [0.4, 0.5 + more, 0.6 + more], seed=seed) for seed, more in enumerate((0, 0.1, 0.1, 0.1, 0.2))
    ]
    assert (
        draw_conclusions([*RANDOM, *lead]).headline == "logo beats random selection by 0.100 in balanced accuracy."
    )
    others = [
        _run(strategy, [0.4, 0.4, 0.4], seed=seed, **{"strategy.query_model": model})
        for strategy in ("badge", "entropy", "coreset")
        for model in ("global", "local", "ensemble")
        for seed in range(5)
    ]
    found = draw_conclusions([*RANDOM, *lead, *others])
    assert found.headline == (
        "No strategy is shown to beat random selection: logo is 0.100 above it in balanced accuracy, within the "
        "noise for the best of 10."
    )
    assert "(-0.077 to +0.277, 99.5 % interval as the best of 10, 5 paired seeds)" in found.facts[0]


def test_one_that_may_be_as_good_is_not_said_to_be_beaten() -> None:
    surely = [_run("feal", [0.4, 0.45, 0.55], seed=seed) for seed in range(5)]
    perhaps = [_run("badge", [0.4, 0.4 + 0.3 * (-1) ** seed, 0.5], seed=seed) for seed in range(5)]
    found = draw_conclusions([*RANDOM, *surely, *perhaps])
    assert found.headline == (
        "No strategy is shown to beat random selection: the best, feal, is 0.050 below it in balanced accuracy."
    )


def test_random_labels_of_another_loss_may_be_the_best_of_all() -> None:
    """feal is held against random labels on its own loss; those on cross entropy are better than both."""
    better = [_run("feal", [0.4, 0.6, 0.6], seed=seed) for seed in range(5)]
    alike = [_run("random", [0.4, 0.5, 0.5], seed=seed, loss="evidential") for seed in range(5)]
    plain = [_run("random", [0.4, 0.8, 0.8], seed=seed, loss="plain") for seed in range(5)]
    found = draw_conclusions([*better, *alike, *plain])
    assert found.headline == "feal beats random selection (random evidential) by 0.100 in balanced accuracy."
    assert "random plain has the highest balanced accuracy of all, 0.800 against 0.600 for feal" in found.facts[-1]


def test_full_supervision_is_the_measure_if_it_is_there() -> None:
    found = draw_conclusions([*RANDOM, _run("full", [0.8])])
    assert found.facts == ("Full supervision reaches 0.800; shares of it reached in the last round: random 75%.",)
    assert found.headline.startswith("random has the highest balanced accuracy (0.550)")


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([_run("feal", [0.4, 0.5], stage="train")], "no run is finished"),
        ([_run("feal", [0.4])], "one round only"),
        ([_run("feal", [0.4, 0.5])], "compare with: run strategy=random"),
    ],
    ids=["unfinished", "one round", "no random"],
)
def test_where_nothing_can_be_said_that_is_said(runs: list[Run], why: str) -> None:
    assert why in draw_conclusions(runs).headline


BETTER = (0.0, 0.1, 0.1, 0.1, 0.2)
MODELS = ("global", "local", "ensemble")


def arm(strategy: str, above: Sequence[float], **settings: object) -> list[Run]:
    """Runs whose curve is 0.2, 0.4, 0.4 over 10, 20 and 40 labels, and above that in rounds 2 and 3 by seed."""
    return [made(strategy, seed, (0.2, 0.4 + more, 0.4 + more), **settings) for seed, more in enumerate(above)]


FLAT_RANDOM = arm("random", [0.0] * 5)


def test_the_best_is_judged_over_all_arms_and_by_how_many_there_are() -> None:
    alone = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *arm("badge", BETTER)])))
    low, high = stats.ttest_1samp(BETTER, 0).confidence_interval(0.95)
    assert low > 0
    assert alone[0] == "Best of 2 arms: badge global (0.500)."
    assert alone[1] == (
        "Certainty: beyond the noise. badge global differs from random by +0.100 "
        f"({low:+.3f} to {high:+.3f}, 95 % interval, 5 paired seeds)."
    )
    others = [
        run
        for strategy in ("entropy", "coreset", "tod")
        for model in MODELS
        for run in arm(strategy, [-0.1] * 5, **{"strategy.query_model": model})
    ]
    among_ten = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *arm("badge", BETTER), *others])))
    low, high = stats.ttest_1samp(BETTER, 0).confidence_interval(1 - 0.05 / 10)
    assert low < 0
    assert among_ten[0] == "Best of 11 arms: badge global (0.500)."
    assert among_ten[1] == (
        "Certainty: within the noise. badge global differs from random by +0.100 "
        f"({low:+.3f} to {high:+.3f}, 99.5 % interval as the best of 10, 5 paired seeds)."
    )


def test_labels_saved() -> None:
    saved = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *arm("badge", BETTER)])))[2]
    # 0.4 lies between 0.2 at 10 labels and 0.5 at 20.
    needed = np.interp(0.4, [0.2, 0.5], [10, 20])
    assert saved == (
        f"Labels saved: {40 - needed:.0f} per site ({1 - needed / 40:.0%}). "
        f"badge global needs {needed:.0f} to reach the last value of random (40 labels per site)."
    )
    at_once = [made("badge", seed, (0.4, 0.5, 0.5)) for seed in range(5)]
    assert describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *at_once])))[2] == (
        "Labels saved: 30 per site (75%). "
        "badge global reaches the last value of random (40 labels per site) in its first round."
    )
    early = [made("badge", seed, (0.2, 0.9, 0.3)) for seed in range(5)]
    late = [made("random", seed, (0.2, 0.2, 0.95)) for seed in range(5)]
    assert "never reaches" in describe_best_arm(compare_arms(make_arms([*late, *early])))[2]


def test_another_loss_may_hold_the_best_and_random_may() -> None:
    balanced = arm("random", [0.3] * 5, loss="balanced")
    found = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *arm("badge", BETTER), *balanced])))
    assert found == ("Best of 3 arms: random balanced (0.700), the reference: no other arm is better.",)
    strata = arm("strata", [0.35] * 5)
    found = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *arm("badge", BETTER), *balanced, *strata])))
    assert found[0] == "Best of 4 arms: strata (0.750)."
    assert "differs from random balanced by +0.050" in found[1]


@pytest.mark.parametrize(
    ("pairs", "said"), [(1, "share one seed; three are needed"), (3, "3 paired seeds: weak evidence")]
)
def test_few_pairs_show_little(pairs: int, said: str) -> None:
    runs = [*FLAT_RANDOM[:pairs], *arm("badge", (0.1, 0.11, 0.12)[:pairs])]
    assert said in describe_best_arm(compare_arms(make_arms(runs)))[1]


def test_where_lower_is_better_the_lowest_is_the_best() -> None:
    better = arm("badge", [-0.1, -0.11, -0.12, -0.1, -0.1])
    found = describe_best_arm(compare_arms(make_arms([*FLAT_RANDOM, *better]), metric="hd95"))
    assert found[0] == "Best of 2 arms: badge global (2.940)."
    assert found[1].startswith("Certainty: beyond the noise.")


def test_nothing_to_say_without_a_reference_or_a_second_round() -> None:
    assert describe_best_arm(compare_arms(make_arms(arm("badge", BETTER)))) == ()
    one_round = [made(name, 0, (0.2,)) for name in ("random", "badge")]
    assert describe_best_arm(compare_arms(make_arms(one_round))) == ()
