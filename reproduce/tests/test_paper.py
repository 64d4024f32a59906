"""Every table and figure is there, every command is valid, and the commands make the published rows."""

import json
import re
import shlex
from functools import cache

import pytest

from feal.analysis.plots import PLOTS
from feal.config import load, parse
from feal.errors import FealError
from feal.experiment.sweep import plan_sweep, read_grid
from feal.metrics import find_metrics
from feal.settings import Settings
from reproduce.__main__ import README, readme
from reproduce.paper import METRICS as REPORTED
from reproduce.paper import Entry, find_entry, read_differences, read_entries, read_published, read_sources

ENTRIES = read_entries()
every = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


@cache
def _row(preset: str, words: tuple[str, ...]) -> str:
    """Return the settings of the run for a published row, seed 0."""
    return json.dumps(load(preset, parse(words)).dump())


def _rows(entry: Entry) -> set[str]:
    named = {
        (row.preset, tuple(f"{key}={json.dumps(value)}" for key, value in row.overrides.items()))
        for row in entry.published
        if row.strategy
    }
    return {_row(*row) for row in named}


@cache
def _sweep_settings(line: str) -> tuple[Settings, ...]:
    """Return the settings of every run that a sweep makes."""
    _, _, preset, *words = shlex.split(line)
    return tuple(plan_sweep(preset, read_grid(words[: words.index("--out")])).runs.values())


def _runs(entry: Entry) -> dict[str, Settings]:
    lines = [line for preset in entry.presets for line in entry.run_commands(preset)]
    return {json.dumps(settings.dump()): settings for line in lines for settings in _sweep_settings(line)}


def test_every_table_and_figure_is_there() -> None:
    assert list(ENTRIES) == [f"table-{n}" for n in range(1, 12)] + [f"figure-{n}" for n in range(1, 20)]


@every
def test_every_combination_of_a_sweep_is_a_valid_configuration(entry: Entry) -> None:
    for preset in entry.presets:
        for line in entry.run_commands(preset):
            assert line.startswith(f"feal sweep {preset} ")
            assert f" --out runs/{(entry.runs_of or (entry.name,))[0].split('-')[0]}" in line
            settings = _sweep_settings(line)
            assert settings
            assert {one.dataset.name for one in settings} == {preset}
            assert len({json.dumps(one.dump()) for one in settings}) == len(settings)


@every
def test_views_show_the_runs_and_name_existing_plots_and_metrics(entry: Entry) -> None:
    for preset in entry.presets:
        made = {shlex.split(line)[-1] for line in entry.run_commands(preset)}
        for line in entry.view_commands(preset):
            words = shlex.split(line)
            if words[1] == "data":
                assert words[:4] == ["feal", "data", words[2], preset]
                assert words[2] in ("check", "show")
                continue
            assert words[1] in ("compare", "plot")
            place = words[2] if words[1] == "compare" else words[3]
            assert place in made
            if words[1] == "plot":
                assert words[2] in PLOTS.names()
                assert words[4] == "-o"
                assert words[6:7] in ([], ["--where"])
                metric = words[7].removeprefix("metric=") if words[6:] else None
            else:
                assert (words[3], *words[5:]) == ("--metric", "--over", "mean")
                metric = words[4]
            if metric is not None:
                task = "classification" if preset in REPORTED else "segmentation"
                assert metric in [known.name for known in find_metrics(task)]
                assert metric == "hd95" or metric in {
                    row.metric for row in read_published() if row.preset == preset
                }


def test_no_two_commands_write_to_one_file() -> None:
    files = [
        line.split(" -o ")[1].split()[0]
        for entry in ENTRIES.values()
        for line in entry.commands()
        if " -o " in line
    ]
    assert len(set(files)) == len(files)


@every
def test_commands_make_a_run_for_every_published_row(entry: Entry) -> None:
    rows, runs = _rows(entry), _runs(entry)
    assert rows <= set(runs)
    seeds = {settings.seed for settings in runs.values()}
    assert seeds == {0, 1, 2} if rows else seeds in (set(), {0}, {0, 1, 2})


@pytest.mark.parametrize("name", ["table-1", "table-2", "table-3", "table-4", "table-7", "table-8", "table-9"])
def test_ablation_runs_nothing_but_its_rows(name: str) -> None:
    entry = ENTRIES[name]
    assert _rows(entry) == {text for text, settings in _runs(entry).items() if settings.seed == 0}


def test_budgets_and_rounds_of_the_budget_ablation() -> None:
    runs = _runs(ENTRIES["figure-14"]).values()
    assert {settings.budget for settings in runs} == {250, 500, 750, 0.1}
    assert {settings.rounds for settings in runs} == {10}
    assert len(runs) == 4 * 9 * 3


def test_strategies_share_the_first_model_where_their_selections_are_plotted() -> None:
    runs = _runs(ENTRIES["figure-7"]).values()
    assert len(runs) == 9
    assert {settings.loss_name for settings in runs} == {"evidential"}


@every
def test_fields_of_an_entry_are_consistent(entry: Entry) -> None:
    assert set(entry.differences) <= set(read_differences())
    assert entry.published or entry.not_printed or not entry.presets
    assert set(entry.runs_of) <= set(ENTRIES)
    assert {"squared" in entry.differences} == {"code" in entry.differences and _segmentation(entry)}
    for name in re.findall(r"(?:table|figure)-\d+", f"{entry.text} {entry.not_printed} {entry.shows}"):
        assert name in ENTRIES


def _segmentation(entry: Entry) -> bool:
    return bool({"fed-polyp", "fed-prostate", "fed-fundus", "octa-500"} & set(entry.presets))


def test_every_difference_is_used_and_names_settings_that_change_the_preset() -> None:
    assert {key for entry in ENTRIES.values() for key in entry.differences} == set(read_differences())
    found = 0
    for text in read_differences().values():
        words = re.findall(r"(?<!\S)[a-z0-9_.]+=[a-z0-9]+(?!\S)", text)
        for word in words:
            assert load("fed-polyp", parse([word])) != load("fed-polyp"), word
        found += len(words)
    assert found == 10


def test_another_choice_is_a_setting_that_changes_the_preset() -> None:
    for source in read_sources():
        preset = "fed-isic" if source.other.endswith("(Fed-ISIC)") else "fed-polyp"
        words = re.findall(r"[a-z_.0-9]+=\S+", source.other)
        assert bool(words) == bool(source.other and "`" not in source.other), source.what
        if words:
            assert load(preset, parse(words)) != load(preset), source.what


def test_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(FealError, match="There is no table or figure 'tabel-6': did you mean 'table-6'"):
        find_entry("tabel-6")


def test_readme_is_up_to_date() -> None:
    assert README.read_text() == readme()


def test_readme_has_every_command_and_its_links_work() -> None:
    page = readme().partition("<!-- generated -->")[2]
    blocks = "".join(re.findall(r"```\n(.*?)```", page, flags=re.DOTALL)).splitlines()
    assert blocks == [line for entry in ENTRIES.values() for line in entry.commands()]
    for link in re.findall(r"\]\(#([^)]*)\)", page):
        assert f"\n## {link}\n" in page
