import math

import numpy as np
import pytest

from feal.analysis.arms import make_arms
from feal.analysis.compare import compare_arms
from feal.analysis.runs import Run
from feal.analysis.tables import (
    RoundTable,
    make_comparison_grid,
    make_round_grid,
    tabulate_rounds,
    to_rows,
)
from feal.errors import FealError
from tests.analysis.made import ENTROPY, FULL, RANDOM, made


def cells(table: RoundTable, name: str) -> dict[int, tuple[float, float, int, int | None]]:
    (arm,) = (arm for arm in table.arms if arm.name == name)
    rows = table.of(arm).items()
    return {at: (row.value, row.sd, row.n, None if math.isnan(row.rank) else row.rank) for at, row in rows}


def test_means_and_deviations_over_seeds() -> None:
    table = tabulate_rounds(make_arms([*RANDOM, *ENTROPY, *FULL]))
    assert (table.measure.metric, table.measure.over) == ("balanced_accuracy", "pooled")
    assert (table.rounds, table.usual_n) == ((1, 2, 3), 2)
    assert [arm.name for arm in table.arms] == ["full", "random", "entropy local"]
    apart = np.std([0.2, 0.4], ddof=1)
    assert cells(table, "random")[1] == pytest.approx((0.3, apart, 2, None))
    assert cells(table, "full") == {1: (pytest.approx(0.8), pytest.approx(apart), 2, None)}
    assert [row.labels_per_site for row in table.of(table.arms[1]).values()] == [10, 20, 40]


def test_the_mean_of_sites_and_other_metrics() -> None:
    arms = make_arms(RANDOM)
    assert cells(tabulate_rounds(arms, over="mean"), "random")[3][0] == pytest.approx(0.25)
    assert cells(tabulate_rounds(arms, metric="hd95"), "random")[3][0] == pytest.approx(5)
    with pytest.raises(FealError, match="no metric 'hd96': did you mean 'hd95'"):
        tabulate_rounds(arms, metric="hd96")


@pytest.mark.parametrize(("metric", "ranks"), [("balanced_accuracy", [2, 1, None]), ("hd95", [2, None, 1])])
def test_best_and_second_best_of_a_round_but_for_the_first(metric: str, ranks: list[int | None]) -> None:
    badge = made("badge", 0, (0.9, 0.1, 0.2))
    table = tabulate_rounds(make_arms([*RANDOM, *ENTROPY, badge, *FULL]), metric=metric)
    assert [cells(table, name)[2][3] for name in ("random", "entropy local", "badge global")] == ranks
    assert {cells(table, arm.name)[1][3] for arm in table.arms} == {None}


def test_equal_means_share_a_place_and_one_arm_alone_has_none() -> None:
    same = [made("badge", seed, (0.0, 0.4, 0.5)) for seed in (0, 1)]
    table = tabulate_rounds(make_arms([*RANDOM, *same]))
    assert [cells(table, arm.name)[2][3] for arm in table.arms] == [1, 1]
    assert cells(tabulate_rounds(make_arms(RANDOM)), "random")[3][3] is None


def test_unfinished_arms_have_no_place_and_cells_know_their_seeds() -> None:
    running = [made("badge", 0, (0.8, 0.9), stage="train"), made("badge", 1, (0.6,), stage="train")]
    broken = made("entropy", 2, (0.3, 0.3, 0.3), **{"strategy.query_model": "local"}, missing=2)
    table = tabulate_rounds(make_arms([*RANDOM, *ENTROPY, broken, *running]))
    badge = cells(table, "badge global")
    assert badge[1] == pytest.approx((0.7, np.std([0.8, 0.6], ddof=1), 2, None))
    assert badge[2][0] == 0.9
    assert math.isnan(badge[2][1])
    assert set(badge) == {1, 2}
    assert [entry[2] for entry in cells(table, "entropy local").values()] == [3, 2, 3]
    assert cells(table, "entropy local")[3][3] == 1


def test_full_alone_and_nothing_at_all() -> None:
    assert tabulate_rounds(make_arms(FULL)).rounds == (1,)
    with pytest.raises(FealError, match="No run has a balanced_accuracy after any round"):
        tabulate_rounds(make_arms([made("random", 0, (), stage="train")]))
    with pytest.raises(FealError, match="No run has a balanced_accuracy"):
        tabulate_rounds(make_arms([made("random", 0, (None, None, None))]))


def words(*runs: Run, metric: str | None = None) -> list[list[str]]:
    return [
        [entry.text for entry in row]
        for row in make_round_grid(tabulate_rounds(make_arms(runs), metric=metric)).rows
    ]


def test_full_is_on_top_with_its_figure_in_the_last_column() -> None:
    grid = make_round_grid(tabulate_rounds(make_arms([*RANDOM, *ENTROPY, *FULL])))
    assert grid.heading == (
        "strategy", "query model", "round 1 (10 labels)", "round 2 (20 labels)", "round 3 (40 labels)",
    )  # fmt: skip
    assert grid.title.endswith("mean ± standard deviation of 2 seeds")
    assert [entry.text for entry in grid.rows[0]] == ["full", "", "", "", "0.800 ± 0.141"]
    assert grid.above == 1
    assert grid.to_markdown().splitlines()[-1] == (
        "| entropy | local | 0.300 ± 0.141 | **0.550 ± 0.071** | **0.650 ± 0.212** |"
    )
    assert "random &  & 0.300 $\\pm$ 0.141 & \\underline{0.400 $\\pm$ 0.141} &" in grid.to_latex()
    assert grid.to_latex().count("\\midrule") == 2


def test_a_cell_says_its_seeds_where_they_differ_and_what_is_unfinished() -> None:
    running = made("badge", 0, (0.8,), stage="train")
    assert words(*RANDOM, running)[1] == ["badge (unfinished)", "global", "0.800 (n=1)", "-", "-"]
    assert words(RANDOM[0])[0][2:] == ["0.200", "0.300", "0.400"]


def test_labels_that_differ_by_arm_are_not_in_the_heading() -> None:
    other = made("random", 0, (0.1, 0.2, 0.3), budget=3, labels=(10, 13, 16))
    grid = make_round_grid(tabulate_rounds(make_arms([*RANDOM, other])))
    assert grid.heading == ("strategy", "query model", "settings", "round 1 (10 labels)", "round 2", "round 3")
    assert [row[2].text for row in grid.rows] == ["plain, budget=3", "plain, budget=5"]


def test_a_figure_that_falls_says_so() -> None:
    grid = make_round_grid(tabulate_rounds(make_arms(RANDOM), metric="hd95"))
    assert grid.title.startswith("HD95 (lower is better), over all")


def test_verdicts_in_words() -> None:
    grid = make_comparison_grid(compare_arms(make_arms([*RANDOM, *ENTROPY, *FULL]), share=0.5))
    assert grid.heading[3:] == (
        "mean of rounds 2 to 3", "area under the curve", "labels of a site to 50 % of full",
        "difference to random", "95 % interval", "pairs",
    )  # fmt: skip
    assert [entry.text for entry in grid.rows[1]] == [
        "entropy", "local", "2", "0.600 ± 0.141", "0.542 ± 0.130", "14 of 100", "+0.150",
        "+0.150 to +0.150", "2",
    ]  # fmt: skip
    assert [entry.text for entry in grid.rows[0]][-3:] == ["-", "-", "-"]
    never = make_comparison_grid(compare_arms(make_arms([*RANDOM, *FULL])))
    assert never.rows[0][5].text == "not reached"
    one_round = make_comparison_grid(
        compare_arms(make_arms([made("random", 0, (0.2,)), made("badge", 0, (0.5,))]))
    )
    assert [entry.text for entry in one_round.rows[1]][2:] == ["1", "-", "-", "-", "+0.300", "-", "1"]


def test_tidy_rows_have_every_number_once() -> None:
    arms = make_arms([*RANDOM, *ENTROPY, *FULL])
    rows = to_rows(tabulate_rounds(arms), compare_arms(arms, share=0.5))
    assert len({tuple(row) for row in rows}) == 1
    keys = [(row["arm"], row["metric"], row["round"]) for row in rows]
    assert len(keys) == len(set(keys)) == 7 + 2 * 3 + 1
    found = dict(zip(keys, rows, strict=True))
    assert found["entropy local", "balanced_accuracy", 2]["rank"] == 1
    assert found["full", "balanced_accuracy", 1]["labels_per_site"] == 100
    assert found["entropy local", "labels_to_0.5_of_full", None]["value"] == 14.0
    assert found["entropy local", "difference_of_outcome", None]["reference"] == "random"
    assert not math.isnan(found["random", "area", None]["value"])


def test_random_on_the_plain_loss_has_columns_of_its_own() -> None:
    evidential = [made("random", seed, (0.0, 0.1, 0.1), loss="evidential") for seed in (0, 1)]
    feal = [made("feal", seed, (0.1, 0.2, 0.2)) for seed in (0, 1)]
    found = compare_arms(make_arms([*RANDOM, *evidential, *feal]))
    grid = make_comparison_grid(found)
    assert grid.heading[-2:] == ("pairs", "difference to random on the plain loss (95 % interval)")
    by_arm = {row[0].text + row[2].text: [entry.text for entry in row[-2:]] for row in grid.rows}
    assert by_arm == {
        "randomevidential": ["-", "-0.350 (-0.450 to -0.250)"],
        "randomplain": ["-", "-"],
        "feal": ["2", "-0.250 (-0.350 to -0.150)"],
    }
    alone = make_comparison_grid(compare_arms(make_arms([RANDOM[0], evidential[0], feal[0]])))
    assert [row[-1].text for row in alone.rows] == ["-0.250", "-", "-0.150"]
    rows = [
        row
        for row in to_rows(tabulate_rounds(make_arms([*RANDOM, *evidential, *feal])), found)
        if row["reference"]
    ]
    assert [(row["arm"], row["reference"]) for row in rows] == [
        ("random evidential", "random plain"),
        ("feal", "random evidential"),
        ("feal", "random plain"),
    ]


def test_a_share_that_the_first_round_reaches_is_told_as_at_most() -> None:
    grid = make_comparison_grid(compare_arms(make_arms([*RANDOM, *FULL]), share=0.25))
    assert grid.rows[0][5].text == "at most 10 of 100"
