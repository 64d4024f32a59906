import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from feal.analysis.arms import make_arms
from feal.analysis.compare import ArmDifference, ArmResult, Comparison, compare_arms
from feal.analysis.runs import Run
from feal.analysis.stats import paired_difference
from feal.errors import FealError
from tests.analysis.made import ENTROPY, FULL, LABELS, RANDOM, made


def of(found: Comparison, name: str) -> ArmResult:
    (result,) = (result for result in found.results if result.arm.name == name)
    return result


def test_by_hand() -> None:
    found = compare_arms(make_arms([*RANDOM, *ENTROPY, *FULL]))
    entropy, random = of(found, "entropy local"), of(found, "random")
    assert (found.rounds, entropy.n, random.difference) == (3, 2, None)
    assert entropy.outcome == pytest.approx((0.6, np.std([0.5, 0.7], ddof=1)))
    # The outcomes of the pairs differ by 0.15 and 0.15.
    assert entropy.difference is not None
    assert entropy.difference.mean == pytest.approx(0.15)
    assert (entropy.difference.low, entropy.difference.high) == pytest.approx((0.15, 0.15))
    assert found.sentences == (
        "entropy local is 0.150 above random (95 % interval 0.150 to 0.150, 2 pairs): "
        "beyond the noise (few pairs: weak evidence).",
    )


def test_areas_and_intervals_are_scipy_s() -> None:
    draw = np.random.default_rng(0)
    values = {name: draw.uniform(0.2, 0.8, (7, 3)) for name in ("random", "badge")}
    runs = [made(name, seed, row.tolist()) for name, rows in values.items() for seed, row in enumerate(rows)]
    found = compare_arms(make_arms(runs))
    areas = trapezoid(values["badge"], LABELS, axis=1) / (LABELS[-1] - LABELS[0])
    assert of(found, "badge global").area == pytest.approx((areas.mean(), areas.std(ddof=1)))
    apart = (values["badge"] - values["random"])[:, 1:].mean(axis=1)
    expected = stats.bootstrap(
        (apart,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    difference = of(found, "badge global").difference
    assert difference is not None
    assert (difference.low, difference.high) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("share", "labels"),
    # The mean curve is 0.3, 0.55, 0.65 at 10, 20 and 40 labels; full has 0.8.
    [(0.25, 10), (0.5, 10 + 10 * (0.4 - 0.3) / 0.25), (0.75, 30), (0.8125, 40)],
)
def test_labels_to_reach_a_share_of_full(share: float, labels: float) -> None:
    entropy = of(compare_arms(make_arms([*RANDOM, *ENTROPY, *FULL]), share=share), "entropy local")
    assert entropy.labels == pytest.approx(labels)
    assert entropy.all_labels == 100


def test_a_share_that_is_never_reached_and_no_full() -> None:
    assert math.isnan(of(compare_arms(make_arms([*RANDOM, *FULL])), "random").labels)
    found = compare_arms(make_arms([*RANDOM, *ENTROPY]))
    assert math.isnan(of(found, "random").all_labels)
    assert any("There is no finished run of full" in remark for remark in found.remarks)


def test_where_lower_is_better_a_share_is_above_full() -> None:
    runs = [made("random", 0, (0.9, 0.5, 0.3)), made("full", 0, (0.2,), labels=(100,))]
    # HD95 falls 9, 5, 3; full has 2, and half as good is 4: between 20 and 40 labels.
    assert of(compare_arms(make_arms(runs), metric="hd95", share=0.5), "random").labels == pytest.approx(30)


def test_any_arm_can_be_held_against() -> None:
    arms = make_arms([*RANDOM, *ENTROPY, *FULL])
    found = compare_arms(arms, to="entropy local")
    assert of(found, "entropy local").difference is None
    assert found.sentences[0].startswith("random is 0.150 below entropy local")
    with pytest.raises(FealError, match="no arm 'entropy locl': did you mean 'entropy local'"):
        compare_arms(arms, to="entropy locl")
    with pytest.raises(FealError, match="full has no finished run with fewer labels than all"):
        compare_arms(arms, to="full")


def test_random_of_the_same_loss_is_preferred() -> None:
    other = [made("random", seed, (0.0, 0.0, 0.0), loss="evidential") for seed in (0, 1)]
    feal = [made("feal", seed, (0.1, 0.1, 0.1)) for seed in (0, 1)]
    found = compare_arms(make_arms([*RANDOM, *other, *feal]))
    difference = of(found, "feal").difference
    assert difference is not None
    assert (difference.reference, difference.mean) == ("random evidential", pytest.approx(0.1))
    assert not any("not only in the selection" in remark for remark in found.remarks)
    alone = compare_arms(make_arms([*RANDOM, *feal]))
    assert "feal: differs from random not only in the selection, but also in loss." in alone.remarks


def test_random_with_the_same_settings_is_the_reference() -> None:
    def arm(strategy: str, value: float, **settings: object) -> list[Run]:
        return [made(strategy, seed, (0.1, value, value), **settings) for seed in (0, 1)]

    runs = [*arm("random", 0.2, budget=3), *arm("random", 0.4, budget=5), *arm("badge", 0.5, budget=5)]
    found = compare_arms(make_arms(runs))
    difference = of(found, "badge global").difference
    assert difference is not None
    assert (difference.reference, difference.mean) == ("random plain, budget=5", pytest.approx(0.1))
    assert not any("not only in the selection" in remark for remark in found.remarks)
    assert all(of(found, f"random plain, budget={budget}").difference is None for budget in (3, 5))


def test_random_on_the_plain_loss_stands_beside_the_nearest() -> None:
    evidential = [made("random", seed, (0.0, 0.1, 0.1), loss="evidential") for seed in (0, 1)]
    feal = [made("feal", seed, (0.1, 0.2, 0.2)) for seed in (0, 1)]
    found = compare_arms(make_arms([*RANDOM, *evidential, *feal]))
    both = [(row.reference, round(row.mean, 3)) for row in (of(found, "feal").difference,
            of(found, "feal").to_plain) if row]  # fmt: skip
    # Random on the plain loss has 0.35 and 0.55 in the mean of rounds 2 and 3.
    assert both == [("random evidential", 0.1), ("random plain", -0.25)]
    loss = of(found, "random evidential")
    assert loss.difference is None
    assert loss.to_plain is not None
    assert loss.to_plain.mean == pytest.approx(-0.35)
    assert of(found, "random plain").to_plain is None
    assert len(found.sentences) == 3
    # With a reference of one's own, or another budget, there is nothing to stand beside it.
    assert (
        of(compare_arms(make_arms([*RANDOM, *evidential, *feal]), to="random evidential"), "feal").to_plain is None
    )
    larger = [made("feal", seed, (0.1, 0.2, 0.2), budget=9) for seed in (0, 1)]
    assert of(compare_arms(make_arms([*RANDOM, *evidential, *larger])), "feal").to_plain is None


def test_labels_to_where_the_reference_ends() -> None:
    # Random's mean curve ends at 0.5; entropy's is 0.3, 0.55, 0.65 at 10, 20 and 40 labels.
    entropy = of(compare_arms(make_arms([*RANDOM, *ENTROPY])), "entropy local")
    assert (entropy.labels_to_match, entropy.reference_labels) == pytest.approx((10 + 10 * 0.2 / 0.25, 40))
    worse = of(compare_arms(make_arms([*RANDOM, *ENTROPY]), to="entropy local"), "random")
    assert math.isnan(worse.labels_to_match)


def test_where_lower_is_better_a_sentence_says_so() -> None:
    (sentence,) = compare_arms(make_arms([*RANDOM, *ENTROPY]), metric="hd95").sentences
    assert sentence.startswith("entropy local is 1.500 above random, which is worse (95 % interval")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            [made("badge", 0, (0.1, 0.2, 0.3))],
            "badge global: paired with random over the common seeds 0 (only random",
        ),
        ([made("badge", 7, (0.1, 0.2, 0.3))], "badge global: no seed in common with random, so"),
        ([made("badge", 0, (0.1, 0.2))], "Some runs have 3 rounds: arms are compared over the first 2"),
        ([], "Intervals of fewer than 5 pairs are narrower than their level says"),
    ],
)
def test_what_a_reader_must_know(more: list[Run], said: str) -> None:
    assert any(said in remark for remark in compare_arms(make_arms([*RANDOM, *ENTROPY, *more])).remarks)


def test_a_single_seed_has_no_interval() -> None:
    found = compare_arms(make_arms([RANDOM[0], ENTROPY[0]]))
    assert found.sentences[0].endswith("(one pair): too few to tell from noise.")
    assert any("A single seed has no interval" in remark for remark in found.remarks)


def test_runs_that_are_unfinished_or_lack_a_round_are_not_judged() -> None:
    running = made("badge", 0, (0.9,), stage="train")
    broken = made("random", 2, (0.0, 0.0, 0.0), missing=3)
    found = compare_arms(make_arms([*RANDOM, broken, running]))
    assert [line.arm.name for line in found.results] == ["random"]
    assert found.results[0].n == 2
    nothing = compare_arms(make_arms([running]))
    assert nothing.results == ()
    assert nothing.remarks == ("No arm has a finished run yet, so there is nothing to compare.",)
    with pytest.raises(FealError, match="badge global has no finished run"):
        compare_arms(make_arms([*RANDOM, running]), to="badge global")


def test_one_round_is_compared_by_its_figure() -> None:
    runs = [made("random", 0, (0.2,)), made("badge", 0, (0.5,))]
    difference = of(compare_arms(make_arms(runs)), "badge global").difference
    assert difference is not None
    assert (difference.quantity, difference.mean) == ("last", pytest.approx(0.3))


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, math.nan])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(FealError, match="such as 0.95"):
        compare_arms(make_arms(RANDOM), share=share)


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        ([0.10, 0.12, 0.11], "feal is 0.110 above random (95 % interval 0.100 to 0.120, 3 pairs): beyond"),
        ([-0.10, -0.12, -0.11], "feal is 0.110 below random (95 % interval -0.120 to -0.100, 3 pairs): beyond"),
        ([0.2, 0.3, 0.3, 0.2], "4 pairs): beyond the noise (few pairs: weak evidence)."),
        ([0.2, 0.3, 0.3, 0.2, 0.2], "5 pairs): beyond the noise of seeds."),
        ([-0.10, 0.10, 0.03], "3 pairs): within the noise of so few seeds."),
        ([0.1, 0.2], "(95 % interval 0.100 to 0.200, 2 pairs): within the noise of so few seeds."),
        ([-0.1, -0.2, -0.6], "3 pairs): within the noise of so few seeds."),
        ([0.0, 0.0], "feal is 0.000 above random (95 % interval 0.000 to 0.000, 2 pairs): within the noise"),
        ([0.4], "feal is 0.400 above random (one pair): too few to tell from noise."),
    ],
)
def test_a_difference_in_words(apart: list[float], said: str) -> None:
    difference = paired_difference(apart, np.zeros(len(apart)))
    assert said in ArmDifference(**vars(difference), arm="feal", reference="random", quantity="last").sentence
