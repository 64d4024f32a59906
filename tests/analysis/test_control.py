"""The gain of one arm over the other in a mixed run: coverage of the truth on simulated runs, and its formula."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from feal.analysis.control import GainEstimate, compare_arms, estimate_gain

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Fit = Callable[[Any, Any], Callable[[Any], Any]]
PRIORS = (0.75, 0.18, 0.07)
"""With rare classes it matters what is labelled."""
FIRST, BUDGET, ROUNDS, RUNS, REPEATS = 24, 24, 4, 40, 6


def fit_ridge(features: Floats, labels: Ints) -> Callable[[Floats], Ints]:
    """The exact ridge head: one against the others."""
    design = np.column_stack([features, np.ones(len(features))])
    targets = np.eye(len(PRIORS))[labels] * 2 - 1
    weights = np.linalg.solve(design.T @ design + np.eye(design.shape[1]), design.T @ targets)
    return lambda rows: (np.column_stack([rows, np.ones(len(rows))]) @ weights).argmax(1)


def fit_means(features: Floats, labels: Ints) -> Callable[[Floats], Ints]:
    """The class whose mean is nearest."""
    known = np.unique(labels)
    means = np.array([features[labels == number].mean(axis=0) for number in known])
    return lambda rows: known[((rows[:, None] - means) ** 2).sum(-1).argmin(1)]


def balanced_accuracy(true: Ints, predicted: Ints) -> float:
    return float(np.mean([(predicted[true == number] == number).mean() for number in np.unique(true)]))


@dataclass
class World:
    """Gaussian classes, of which some are rare."""

    pool: Floats
    pool_labels: Ints
    test: Floats
    test_labels: Ints


def _world(generator: np.random.Generator) -> World:
    centres = generator.normal(size=(len(PRIORS), 8)) / np.sqrt(2)
    labels = [generator.choice(len(PRIORS), 600, p=PRIORS) for _ in range(2)]
    pool, test = (centres[part] + generator.normal(size=(600, 8)) for part in labels)
    return World(pool, labels[0], test, labels[1])


def _select(
    world: World, strategy: str, *, share: float, first: Ints, fit: Fit, seed: list[int]
) -> tuple[Ints, Floats]:
    """Run rounds of which a share is selected by a strategy and the rest at random: samples and arms."""
    generator = np.random.default_rng(seed)
    samples, arms = list(first), [np.nan] * len(first)
    for _ in range(ROUNDS):
        rest = generator.permutation(np.setdiff1d(np.arange(len(world.pool)), samples))
        if strategy == "balance":  # in turns from each predicted class
            predicted = fit(world.pool[samples], world.pool_labels[samples])(world.pool[rest])
            turn = np.array([(predicted[:at] == predicted[at]).sum() for at in range(len(rest))])
            rest = rest[np.argsort(turn, kind="stable")]
        elif strategy == "frequent":  # only what is predicted as the most frequent class
            predicted = fit(world.pool[samples], world.pool_labels[samples])(world.pool[rest])
            rest = rest[np.argsort(predicted != 0, kind="stable")]
        taken = rest[: round(share * BUDGET)]
        control = generator.choice(rest[len(taken) :], BUDGET - len(taken), replace=False)
        samples += [*taken, *control]
        arms += [0.0] * len(taken) + [1.0] * len(control)
    return np.array(samples), np.array(arms)


def _simulate(strategy: str, share: float, fit: Fit) -> list[tuple[float, float, GainEstimate]]:
    """For each run: the mean difference of pure runs from the same labels, that of one pair, and the estimate."""
    found = []
    for run in range(RUNS):
        generator = np.random.default_rng(run)
        world = _world(generator)
        first = generator.choice(600, FIRST, replace=False)
        apart = []
        for repeat in range(REPEATS):
            scores = []
            for name, seed in ((strategy, 0), ("random", 1)):
                samples, _ = _select(world, name, share=1.0, first=first, fit=fit, seed=[run, repeat, seed])
                model = fit(world.pool[samples], world.pool_labels[samples])
                scores.append(balanced_accuracy(world.test_labels, model(world.test)))
            apart.append(scores[0] - scores[1])
        samples, arms = _select(world, strategy, share=share, first=first, fit=fit, seed=[run, 99, 0])
        estimate = compare_arms(
            world.pool[samples],
            world.pool_labels[samples],
            arms,
            world.test,
            world.test_labels,
            fit,
            balanced_accuracy,
            generator=generator,
        )
        found.append((float(np.mean(apart)), apart[0], estimate))
    return found


@pytest.mark.parametrize(
    ("strategy", "share", "fit"),
    [
        ("random", 0.8, fit_ridge),
        ("balance", 0.8, fit_ridge),
        ("balance", 0.5, fit_ridge),
        ("frequent", 0.8, fit_ridge),
        ("balance", 0.8, fit_means),
    ],
)
def test_intervals_cover_the_true_difference(strategy: str, share: float, fit: Fit) -> None:
    found = _simulate(strategy, share, fit)
    # Both the mean over pairs of runs, and a single pair with the chance of its two runs.
    assert np.mean([one.low <= truth <= one.high for truth, _, one in found]) >= 0.85
    assert np.mean([one.low <= pair <= one.high for _, pair, one in found]) >= 0.85
    wrong = np.mean([(one.low > 0) if strategy != "balance" else (one.high < 0) for *_, one in found])
    assert wrong <= 0.05


def _mixed(generator: np.random.Generator, *, arms: list[float]) -> dict[str, Any]:
    world = _world(generator)
    return {
        "features": world.pool[: len(arms)],
        "labels": world.pool_labels[: len(arms)],
        "arm": arms,
        "test_features": world.test,
        "test_labels": world.test_labels,
    }


def test_the_same_generator_gives_the_same_estimate() -> None:
    arms = [np.nan] * 20 + [0.0] * 20 + [1.0] * 5
    mixed = _mixed(np.random.default_rng(0), arms=arms)
    one, other = (
        compare_arms(**mixed, fit=fit_ridge, metric=balanced_accuracy, generator=np.random.default_rng(1))
        for _ in range(2)
    )
    assert one == other
    assert (one.replicates, one.low < one.gain < one.high) == (50, True)


def test_what_is_left_out_and_how_it_is_scaled() -> None:
    """A metric that counts the labels of a kind: each arm 0 label is worth 2, each arm 1 label 1."""
    arms = np.array([-1.0] * 10 + [0.0] * 32 + [1.0] * 8)
    sizes: list[int] = []

    def fit(features: Floats, labels: Ints) -> Callable[[Floats], Floats]:
        sizes.append(len(labels))
        worth = 2 * (features == 0).sum() + (features == 1).sum()
        return lambda rows: np.full(len(rows), float(worth))

    estimate = compare_arms(
        arms, arms, arms, np.zeros(5), np.zeros(5), fit, lambda _, p: float(p.mean()), replicates=3,
        generator=np.random.default_rng(0),
    )  # fmt: skip
    assert set(sizes) == {50 - 7, 50}  # the differences, and the chance of a whole run
    assert estimate.gain == pytest.approx(7 * 40 / 7 * 43 / 50)
    assert estimate.high - estimate.gain == pytest.approx(estimate.gain - estimate.low)


def test_an_interval_is_students_with_the_smaller_arm() -> None:
    estimate = estimate_gain(0.02, [0.0, 0.02, 0.04], scale=3.0, smaller=5)
    half = 3 * 2.776445 * 0.02 * np.sqrt(5 / 4)
    assert estimate == GainEstimate(
        gain=pytest.approx(0.06), low=pytest.approx(0.06 - half), high=pytest.approx(0.06 + half), replicates=3
    )


@pytest.mark.parametrize(
    ("arms", "changes", "problem"),
    [
        ([0.0] * 9 + [1.0], {}, "two labels of each arm"),
        ([0.0] * 10, {}, "two labels of each arm"),
        ([0.0, 1.0] * 5, {"replicates": 1}, "two replicates"),
        ([0.0, 1.0] * 5, {"labels": [0, 1]}, "same samples"),
        ([0.0, 1.0] * 5, {"test_features": np.zeros((0, 8)), "test_labels": []}, "test samples"),
        ([0.0, 1.0] * 5, {"metric": lambda *_: float("nan")}, "not finite"),
    ],
)
def test_what_cannot_be_compared(arms: list[float], changes: dict[str, Any], problem: str) -> None:
    generator = np.random.default_rng(0)
    values = {"fit": fit_ridge, "metric": balanced_accuracy, "generator": generator}
    with pytest.raises(ValueError, match=problem):
        compare_arms(**{**_mixed(generator, arms=arms), **values, **changes})


def test_the_chance_of_both_runs_is_added() -> None:
    plain, paired = (estimate_gain(0.0, [0.0, 0.02, 0.04], scale=3, smaller=5, chance=c) for c in (0.0, 0.05))
    assert paired.high**2 - plain.high**2 == pytest.approx(2.776445**2 * 2 * 0.05**2, rel=1e-5)


def test_a_gain_needs_replicates() -> None:
    with pytest.raises(ValueError, match="two replicates"):
        estimate_gain(0.1, [0.1], scale=1.0, smaller=5)
