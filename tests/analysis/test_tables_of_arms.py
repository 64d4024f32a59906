import math

from feal.analysis.arms import arms_of
from feal.analysis.by_round import by_round
from feal.analysis.grids import latex, markdown
from feal.analysis.runs import Run
from feal.analysis.tables_of_arms import round_grid, tidy_rows, verdict_grid
from feal.analysis.verdicts import verdicts
from tests.analysis.made import ENTROPY, FULL, RANDOM, made


def words(*runs: Run, metric: str | None = None) -> list[list[str]]:
    return [[entry.text for entry in row] for row in round_grid(by_round(arms_of(runs), metric=metric)).rows]


def test_full_is_on_top_with_its_figure_in_the_last_column() -> None:
    grid = round_grid(by_round(arms_of([*RANDOM, *ENTROPY, *FULL])))
    assert grid.heading == (
        "strategy", "query model", "round 1 (10 labels)", "round 2 (20 labels)", "round 3 (40 labels)",
    )  # fmt: skip
    assert grid.title.endswith("mean ± standard deviation of 2 seeds")
    assert [entry.text for entry in grid.rows[0]] == ["full", "", "", "", "0.800 ± 0.141"]
    assert grid.above == 1
    assert markdown(grid).splitlines()[-1] == (
        "| entropy | local | 0.300 ± 0.141 | **0.550 ± 0.071** | **0.650 ± 0.212** |"
    )
    assert "random &  & 0.300 $\\pm$ 0.141 & \\underline{0.400 $\\pm$ 0.141} &" in latex(grid)
    assert latex(grid).count("\\midrule") == 2


def test_a_cell_says_its_seeds_where_they_differ_and_what_is_unfinished() -> None:
    running = made("badge", 0, (0.8,), stage="train")
    assert words(*RANDOM, running)[1] == ["badge (unfinished)", "global", "0.800 (n=1)", "-", "-"]
    assert words(RANDOM[0])[0][2:] == ["0.200", "0.300", "0.400"]


def test_labels_that_differ_by_arm_are_not_in_the_heading() -> None:
    other = made("random", 0, (0.1, 0.2, 0.3), budget=3, labels=(10, 13, 16))
    grid = round_grid(by_round(arms_of([*RANDOM, other])))
    assert grid.heading == ("strategy", "query model", "settings", "round 1 (10 labels)", "round 2", "round 3")
    assert [row[2].text for row in grid.rows] == ["plain, budget=3", "plain, budget=5"]


def test_a_figure_that_falls_says_so() -> None:
    grid = round_grid(by_round(arms_of(RANDOM), metric="hd95"))
    assert grid.title.startswith("HD95 (lower is better), over all")


def test_verdicts_in_words() -> None:
    grid = verdict_grid(verdicts(arms_of([*RANDOM, *ENTROPY, *FULL]), share=0.5))
    assert grid.heading[3:] == (
        "mean of rounds 2 to 3", "area under the curve", "labels of a site to 50 % of full",
        "difference to random", "95 % interval", "pairs",
    )  # fmt: skip
    assert [entry.text for entry in grid.rows[1]] == [
        "entropy", "local", "2", "0.600 ± 0.141", "0.542 ± 0.130", "14 of 100", "+0.150",
        "+0.150 to +0.150", "2",
    ]  # fmt: skip
    assert [entry.text for entry in grid.rows[0]][-3:] == ["-", "-", "-"]
    never = verdict_grid(verdicts(arms_of([*RANDOM, *FULL])))
    assert never.rows[0][5].text == "not reached"
    one_round = verdict_grid(verdicts(arms_of([made("random", 0, (0.2,)), made("badge", 0, (0.5,))])))
    assert [entry.text for entry in one_round.rows[1]][2:] == ["1", "-", "-", "-", "+0.300", "-", "1"]


def test_tidy_rows_have_every_number_once() -> None:
    arms = arms_of([*RANDOM, *ENTROPY, *FULL])
    rows = tidy_rows(by_round(arms), verdicts(arms, share=0.5))
    assert len({tuple(row) for row in rows}) == 1
    keys = [(row["arm"], row["figure"], row["round"]) for row in rows]
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
    found = verdicts(arms_of([*RANDOM, *evidential, *feal]))
    grid = verdict_grid(found)
    assert grid.heading[-2:] == ("pairs", "difference to random on the plain loss (95 % interval)")
    by_arm = {row[0].text + row[2].text: [entry.text for entry in row[-2:]] for row in grid.rows}
    assert by_arm == {
        "randomevidential": ["-", "-0.350 (-0.450 to -0.250)"],
        "randomplain": ["-", "-"],
        "feal": ["2", "-0.250 (-0.350 to -0.150)"],
    }
    alone = verdict_grid(verdicts(arms_of([RANDOM[0], evidential[0], feal[0]])))
    assert [row[-1].text for row in alone.rows] == ["-0.250", "-", "-0.150"]
    rows = [row for row in tidy_rows(by_round(arms_of([*RANDOM, *evidential, *feal])), found) if row["reference"]]
    assert [(row["arm"], row["reference"]) for row in rows] == [
        ("random evidential", "random plain"),
        ("feal", "random evidential"),
        ("feal", "random plain"),
    ]


def test_a_share_that_the_first_round_reaches_is_told_as_at_most() -> None:
    grid = verdict_grid(verdicts(arms_of([*RANDOM, *FULL]), share=0.25))
    assert grid.rows[0][5].text == "at most 10 of 100"
