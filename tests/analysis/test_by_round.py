import math

import numpy as np
import pytest

from feal.analysis.arms import arms_of
from feal.analysis.by_round import ByRound, by_round
from feal.errors import FealError
from tests.analysis.made import ENTROPY, FULL, RANDOM, made


def cells(table: ByRound, name: str) -> dict[int, tuple[float, float, int, int | None]]:
    (line,) = (line for line in table.lines if line.arm.name == name)
    return {at: (cell.mean, cell.deviation, cell.n, cell.rank) for at, cell in line.cells.items()}


def test_means_and_deviations_over_seeds() -> None:
    table = by_round(arms_of([*RANDOM, *ENTROPY, *FULL]))
    assert (table.metric, table.over, table.rounds, table.usual) == ("balanced_accuracy", "pooled", (1, 2, 3), 2)
    assert [line.arm.name for line in table.lines] == ["full", "random", "entropy local"]
    apart = np.std([0.2, 0.4], ddof=1)
    assert cells(table, "random")[1] == pytest.approx((0.3, apart, 2, None))
    assert cells(table, "full") == {1: (pytest.approx(0.8), pytest.approx(apart), 2, None)}
    assert [cell.labels for cell in table.lines[1].cells.values()] == [10, 20, 40]


def test_the_mean_of_sites_and_other_metrics() -> None:
    arms = arms_of(RANDOM)
    assert cells(by_round(arms, over="mean"), "random")[3][0] == pytest.approx(0.25)
    assert cells(by_round(arms, metric="hd95"), "random")[3][0] == pytest.approx(5)
    with pytest.raises(FealError, match="no metric 'hd96': did you mean 'hd95'"):
        by_round(arms, metric="hd96")


@pytest.mark.parametrize(("metric", "ranks"), [("balanced_accuracy", [2, 1, None]), ("hd95", [2, None, 1])])
def test_best_and_second_best_of_a_round_but_for_the_first(metric: str, ranks: list[int | None]) -> None:
    badge = made("badge", 0, (0.9, 0.1, 0.2))
    table = by_round(arms_of([*RANDOM, *ENTROPY, badge, *FULL]), metric=metric)
    by_arm = {line.arm.name: line for line in table.lines}
    found = [by_arm[name].cells[2].rank for name in ("random", "entropy local", "badge global")]
    assert found == ranks
    assert {line.cells[1].rank for line in table.lines} == {None}


def test_equal_means_share_a_place_and_one_arm_alone_has_none() -> None:
    same = [made("badge", seed, (0.0, 0.4, 0.5)) for seed in (0, 1)]
    table = by_round(arms_of([*RANDOM, *same]))
    assert [line.cells[2].rank for line in table.lines] == [1, 1]
    assert cells(by_round(arms_of(RANDOM)), "random")[3][3] is None


def test_unfinished_arms_have_no_place_and_cells_know_their_seeds() -> None:
    running = [made("badge", 0, (0.8, 0.9), stage="train"), made("badge", 1, (0.6,), stage="train")]
    broken = made("entropy", 2, (0.3, 0.3, 0.3), query_model="local", missing=2)
    table = by_round(arms_of([*RANDOM, *ENTROPY, broken, *running]))
    badge = cells(table, "badge global")
    assert badge[1] == pytest.approx((0.7, np.std([0.8, 0.6], ddof=1), 2, None))
    assert badge[2][0] == 0.9
    assert math.isnan(badge[2][1])
    assert set(badge) == {1, 2}
    assert [entry[2] for entry in cells(table, "entropy local").values()] == [3, 2, 3]
    assert cells(table, "entropy local")[3][3] == 1


def test_full_alone_and_nothing_at_all() -> None:
    assert by_round(arms_of(FULL)).rounds == (1,)
    with pytest.raises(FealError, match="No run has a balanced_accuracy after any round"):
        by_round(arms_of([made("random", 0, (), stage="train")]))
    with pytest.raises(FealError, match="No run has a balanced_accuracy"):
        by_round(arms_of([made("random", 0, (None, None, None))]))
