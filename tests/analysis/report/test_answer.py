from collections.abc import Sequence
from dataclasses import replace

import pytest

from feal.analysis.report.answer import answer
from feal.analysis.runs import Run
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
    found = answer([*RANDOM, *better])
    # Means of rounds 2 and 3: 0.76 over seeds against 0.55, pairs 0.2 to 0.22 apart.
    assert found.headline == "feal beats random labels by 0.210 in balanced accuracy."
    sure, saved = found.facts
    assert "over 5 paired seeds)" in sure
    assert "+0.20" in sure
    # 0.6 lies between 5 labels (0.4) and 10 (0.72), at 5 + 5 * 0.2 / 0.32 = 8.125.
    assert saved.startswith(
        "Labels saved: 7 a site (46%). feal needs 8 to reach 0.600, which random reached with 15"
    )
    assert [(line.arm, line.verdict, line.n) for line in found.lines] == [
        ("feal", "better", 5),
        ("random", "-", 5),
    ]


def test_two_seeds_that_agree_are_few() -> None:
    better = [_run("feal", [0.4, 0.7 + 0.04 * seed, 0.8], seed=seed) for seed in range(2)]
    found = answer([*RANDOM[:2], *better])
    assert found.headline == (
        "feal is 0.210 in balanced accuracy above random labels, as far as 2 seeds tell, which is not far."
    )
    assert found.lines[0].verdict == "better, few seeds"


def test_a_difference_within_the_noise_is_called_so() -> None:
    shaky = [_run("feal", [0.4, 0.5 + 0.1 * (-1) ** seed, 0.62], seed=seed) for seed in range(4)]
    found = answer([*RANDOM, *shaky])
    assert found.headline == (
        "No strategy is shown to beat random labels: the best, feal, is 0.010 in balanced accuracy above, "
        "within the noise."
    )
    assert "which are few" in found.facts[0]
    assert "within the noise as well" in found.facts[1]
    assert any("alone has 4" in caution for caution in found.cautions)


def test_random_may_be_the_best() -> None:
    worse = [_run("feal", [0.4, 0.3, 0.3], seed=seed) for seed in range(5)]
    found = answer([*RANDOM, *worse])
    assert found.headline == (
        "Random labels beat every strategy: the best of them, feal, is 0.250 in balanced accuracy below."
    )
    assert "never reaches 0.600" in found.facts[1]


def test_less_than_half_a_label_is_none() -> None:
    alike = [_run("feal", [0.4, 0.5, 0.601], seed=seed) for seed in range(5)]
    assert answer([*RANDOM, *alike]).facts[1] == (
        "Labels saved: none. feal needs as many to reach 0.600, which random reached with 15 labels a site."
    )


def test_one_seed_says_little() -> None:
    found = answer([RANDOM[0], _run("feal", [0.4, 0.9, 0.9])])
    assert found.headline.startswith("feal is 0.350 in balanced accuracy above random labels on one seed")
    assert found.facts[0].startswith("How sure: not at all.")
    assert found.lines[0].verdict == "one seed"


def test_the_best_of_several_is_said_to_be_chosen() -> None:
    better = [_run("feal", [0.4, 0.9, 0.9], seed=seed) for seed in range(5)]
    worse = [_run("badge", [0.4, 0.1, 0.1], seed=seed) for seed in range(5)]
    found = answer([*RANDOM, *better, *worse])
    assert found.headline.startswith("feal beats")
    assert "best of 2" in found.facts[2]
    assert [line.arm for line in found.lines] == ["feal", "random", "badge global"]


def test_what_is_shown_stands_before_what_seems_larger() -> None:
    """badge's mean is the higher one, but its seeds do not agree, and one seed of logo's is the highest."""
    surely = [_run("feal", [0.4, 0.6, 0.7], seed=seed) for seed in range(5)]
    perhaps = [_run("badge", [0.4, 0.7 + 0.5 * (-1) ** seed, 0.6], seed=seed) for seed in range(5)]
    found = answer([*RANDOM, *surely, *perhaps, _run("logo", [0.4, 0.9, 0.9])])
    assert found.headline == "feal beats random labels by 0.100 in balanced accuracy."
    verdicts = {line.arm: line.verdict for line in found.lines}
    assert verdicts == {
        "feal": "better",
        "badge global": "within the noise",
        "logo": "one seed",
        "random": "-",
    }
    assert found.facts[-1].startswith("logo has the highest balanced accuracy of all, 0.900 against 0.650 of feal")


def test_the_best_of_many_is_not_said_to_win_by_what_chance_gives_one_of_them() -> None:
    """One alone by so much is more than the noise; one of ten is not: t of 99.5 % with 4 degrees is 5.6."""
    lead = [
        _run("logo", [0.4, 0.5 + more, 0.6 + more], seed=seed) for seed, more in enumerate((0, 0.1, 0.1, 0.1, 0.2))
    ]
    assert answer([*RANDOM, *lead]).headline == "logo beats random labels by 0.100 in balanced accuracy."
    others = [
        _run(strategy, [0.4, 0.4, 0.4], seed=seed, query_model=model)
        for strategy in ("badge", "entropy", "coreset")
        for model in ("global", "local", "ensemble")
        for seed in range(5)
    ]
    found = answer([*RANDOM, *lead, *others])
    assert found.headline == (
        "No strategy is shown to beat random labels: logo is 0.100 in balanced accuracy above, within the noise "
        "of the best of 10."
    )
    assert found.facts[2].endswith("the interval that allows for it is -0.077 to +0.277.")


def test_one_that_may_be_as_good_is_not_said_to_be_beaten() -> None:
    surely = [_run("feal", [0.4, 0.45, 0.55], seed=seed) for seed in range(5)]
    perhaps = [_run("badge", [0.4, 0.4 + 0.3 * (-1) ** seed, 0.5], seed=seed) for seed in range(5)]
    found = answer([*RANDOM, *surely, *perhaps])
    assert found.headline == (
        "No strategy is shown to beat random labels: the best, feal, is 0.050 in balanced accuracy below."
    )


def test_random_labels_of_another_loss_may_be_the_best_of_all() -> None:
    """feal is held against random labels on its own loss; those on cross entropy are better than both."""
    better = [_run("feal", [0.4, 0.6, 0.6], seed=seed) for seed in range(5)]
    alike = [_run("random", [0.4, 0.5, 0.5], seed=seed, loss="evidential") for seed in range(5)]
    plain = [_run("random", [0.4, 0.8, 0.8], seed=seed, loss="plain") for seed in range(5)]
    found = answer([*better, *alike, *plain])
    assert found.headline == "feal beats random labels (random evidential) by 0.100 in balanced accuracy."
    assert "random plain has the highest balanced accuracy of all, 0.800 against 0.600 of feal" in found.facts[-1]


def test_full_supervision_is_the_measure_if_it_is_there() -> None:
    found = answer([*RANDOM, _run("full", [0.8])])
    assert found.facts == ("With everything labelled it is 0.800; reached of that in the last round: random 75%.",)
    assert found.headline.startswith("random has the highest balanced accuracy (0.550)")


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([_run("feal", [0.4, 0.5], stage="train")], "no run is finished"),
        ([_run("feal", [0.4])], "one round only"),
        ([_run("feal", [0.4, 0.5])], "cannot be said: run strategy=random"),
    ],
    ids=["unfinished", "one round", "no random"],
)
def test_where_nothing_can_be_said_that_is_said(runs: list[Run], why: str) -> None:
    assert why in answer(runs).headline
