from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from feal.analysis.arms import arms_of
from feal.analysis.leading import on_the_best
from feal.analysis.runs import Run
from feal.analysis.verdicts import verdicts
from tests.analysis.made import made

BETTER = (0.0, 0.1, 0.1, 0.1, 0.2)
MODELS = ("global", "local", "ensemble")


def arm(strategy: str, above: Sequence[float], **settings: object) -> list[Run]:
    """Runs whose curve is 0.2, 0.4, 0.4 over 10, 20 and 40 labels, and above that in rounds 2 and 3 by seed."""
    return [made(strategy, seed, (0.2, 0.4 + more, 0.4 + more), **settings) for seed, more in enumerate(above)]


RANDOM = arm("random", [0.0] * 5)


def test_the_best_is_judged_over_all_arms_and_by_how_many_there_are() -> None:
    alone = on_the_best(verdicts(arms_of([*RANDOM, *arm("badge", BETTER)])))
    low, high = stats.ttest_1samp(BETTER, 0).confidence_interval(0.95)
    assert low > 0
    assert alone[0] == "Best of 2 arms: badge global (0.500)."
    assert alone[1] == (
        f"Its difference of +0.100 to random ({low:+.3f} to {high:+.3f}, 5 pairs) is more than the noise."
    )
    others = [
        run
        for strategy in ("entropy", "coreset", "tod")
        for model in MODELS
        for run in arm(strategy, [-0.1] * 5, query_model=model)
    ]
    among_ten = on_the_best(verdicts(arms_of([*RANDOM, *arm("badge", BETTER), *others])))
    low, high = stats.ttest_1samp(BETTER, 0).confidence_interval(1 - 0.05 / 10)
    assert low < 0
    assert among_ten[0] == "Best of 11 arms: badge global (0.500)."
    assert among_ten[1] == (
        f"Its difference of +0.100 to random ({low:+.3f} to {high:+.3f}, 99.5 % as 10 were compared, 5 pairs) "
        "is within the noise: none is shown to be better than random."
    )


def test_labels_saved() -> None:
    saved = on_the_best(verdicts(arms_of([*RANDOM, *arm("badge", BETTER)])))[2]
    # 0.4 lies between 0.2 at 10 labels and 0.5 at 20.
    needed = np.interp(0.4, [0.2, 0.5], [10, 20])
    assert saved == f"It is where random ends after 40 labels a site with {needed:.0f}: {40 - needed:.0f} saved."
    at_once = [made("badge", seed, (0.4, 0.5, 0.5)) for seed in range(5)]
    assert on_the_best(verdicts(arms_of([*RANDOM, *at_once])))[2] == (
        "It is where random ends after 40 labels a site from its first round on."
    )
    early = [made("badge", seed, (0.2, 0.9, 0.3)) for seed in range(5)]
    late = [made("random", seed, (0.2, 0.2, 0.95)) for seed in range(5)]
    assert "never reaches" in on_the_best(verdicts(arms_of([*late, *early])))[2]


def test_another_loss_may_hold_the_best_and_random_may() -> None:
    balanced = arm("random", [0.3] * 5, loss="balanced")
    found = on_the_best(verdicts(arms_of([*RANDOM, *arm("badge", BETTER), *balanced])))
    assert found == (
        "Best of 3 arms: random balanced (0.700), which others are held against: none of them is better.",
    )
    strata = arm("strata", [0.35] * 5)
    found = on_the_best(verdicts(arms_of([*RANDOM, *arm("badge", BETTER), *balanced, *strata])))
    assert found[0] == "Best of 4 arms: strata (0.750)."
    assert "+0.050 to random balanced" in found[1]


@pytest.mark.parametrize(
    ("pairs", "said"), [(1, "on one seed, which shows nothing"), (3, "as far as so few pairs")]
)
def test_few_pairs_show_little(pairs: int, said: str) -> None:
    runs = [*RANDOM[:pairs], *arm("badge", (0.1, 0.11, 0.12)[:pairs])]
    assert said in on_the_best(verdicts(arms_of(runs)))[1]


def test_where_lower_is_better_the_lowest_is_the_best() -> None:
    better = arm("badge", [-0.1, -0.11, -0.12, -0.1, -0.1])
    found = on_the_best(verdicts(arms_of([*RANDOM, *better]), metric="hd95"))
    assert found[0] == "Best of 2 arms: badge global (2.940)."
    assert found[1].endswith("is more than the noise.")


def test_nothing_to_say_without_a_reference_or_a_second_round() -> None:
    assert on_the_best(verdicts(arms_of(arm("badge", BETTER)))) == ()
    one_round = [made(name, 0, (0.2,)) for name in ("random", "badge")]
    assert on_the_best(verdicts(arms_of(one_round))) == ()
