"""The map of the paper: nothing left out, every command one that works, numbers and commands of one mind."""

import json
import re
import shlex
from functools import cache

import pytest
import yaml

from feal.analysis.figures import FIGURES
from feal.config import combinations, load, parse
from feal.config.paper import published
from feal.config.paper_map import METRIC, Entry, differences, entries, entry_named
from feal.config.paper_page import paper_page
from feal.errors import FealError
from feal.federation.statistics import FIGURES as METRICS
from feal.settings import Settings
from tests.paths import PROJECT

ENTRIES = {entry.name: entry for entry in entries()}
every = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


@cache
def _row(preset: str, words: tuple[str, ...]) -> str:
    """The settings of a published row's run, seed 0."""
    return json.dumps(load(preset, parse(words)).dump())


def _rows(entry: Entry) -> set[str]:
    named = {
        (row.preset, tuple(f"{key}={json.dumps(value)}" for key, value in row.overrides.items()))
        for row in entry.published()
        if row.strategy
    }
    return {_row(*row) for row in named}


@cache
def _swept(line: str) -> tuple[Settings, ...]:
    """The settings of every run that a sweep makes."""
    _, _, preset, *words = shlex.split(line)
    return tuple(combinations(preset, words[: words.index("--out")]).values())


def _runs(entry: Entry) -> dict[str, Settings]:
    lines = [line for preset in entry.presets for line in entry.making(preset)]
    return {json.dumps(settings.dump()): settings for line in lines for settings in _swept(line)}


def test_every_table_and_figure_is_there_in_order() -> None:
    assert list(ENTRIES) == [f"table-{n}" for n in range(1, 12)] + [f"figure-{n}" for n in range(1, 20)]


@every
def test_every_combination_of_a_sweep_is_a_valid_configuration(entry: Entry) -> None:
    for preset in entry.presets:
        for line in entry.making(preset):
            assert line.startswith(f"feal sweep {preset} ")
            assert f" --out runs/{(entry.runs_of or (entry.name,))[0].split('-')[0]}" in line
            settings = _swept(line)
            assert settings
            assert {one.dataset for one in settings} == {preset}
            assert len({json.dumps(one.dump()) for one in settings}) == len(settings)


@every
def test_a_look_is_at_what_the_commands_made_and_names_what_exists(entry: Entry) -> None:
    for preset in entry.presets:
        made = {shlex.split(line)[-1] for line in entry.making(preset)}
        for line in entry.looking(preset):
            words = shlex.split(line)
            if words[1] == "data":
                assert words[:4] == ["feal", "data", words[2], preset]
                assert words[2] in ("check", "show")
                continue
            assert words[1] in ("compare", "figure")
            place = words[2] if words[1] == "compare" else words[3]
            assert place in made
            if words[1] == "figure":
                assert words[2] in FIGURES.names()
                assert words[4] == "-o"
                assert words[6:7] in ([], ["--where"])
                metric = words[7].removeprefix("metric=") if words[6:] else None
            else:
                assert (words[3], *words[5:]) == ("--metric", "--over", "mean")
                metric = words[4]
            if metric is not None:
                assert metric in METRICS["classification" if preset in METRIC else "segmentation"]
                assert metric == "hd95" or metric in {row.figure for row in published(preset)}


def test_no_two_commands_write_to_one_file() -> None:
    files = [
        line.split(" -o ")[1].split()[0] for entry in entries() for line in entry.commands() if " -o " in line
    ]
    assert len(set(files)) == len(files)


@every
def test_the_commands_make_a_run_for_every_published_row(entry: Entry) -> None:
    rows, runs = _rows(entry), _runs(entry)
    assert rows <= set(runs)
    seeds = {settings.seed for settings in runs.values()}
    assert seeds == {0, 1, 2} if rows else seeds in (set(), {0}, {0, 1, 2})


@pytest.mark.parametrize("name", ["table-1", "table-2", "table-3", "table-4", "table-7", "table-8", "table-9"])
def test_an_ablation_is_run_for_its_rows_alone(name: str) -> None:
    entry = ENTRIES[name]
    assert _rows(entry) == {text for text, settings in _runs(entry).items() if settings.seed == 0}


def test_the_budgets_and_rounds_of_their_ablation() -> None:
    runs = _runs(ENTRIES["figure-14"]).values()
    assert {settings.budget for settings in runs} == {250, 500, 750, 0.1}
    assert {settings.rounds for settings in runs} == {10}
    assert len(runs) == 4 * 9 * 3


def test_strategies_start_from_one_model_where_their_choices_are_drawn() -> None:
    runs = _runs(ENTRIES["figure-7"]).values()
    assert len(runs) == 9
    assert {settings.loss for settings in runs} == {"evidential"}


@every
def test_what_is_said_of_an_entry(entry: Entry) -> None:
    assert set(entry.differs) <= set(differences())
    assert len(entry.differences()) == len(entry.differs)
    assert entry.published() or entry.unprinted or not entry.presets
    assert set(entry.runs_of) <= set(ENTRIES)
    assert {"squared" in entry.differs} == {"code" in entry.differs and _segmentation(entry)}
    for name in re.findall(r"(?:table|figure)-\d+", f"{entry.says} {entry.unprinted} {entry.shows}"):
        assert name in ENTRIES


def _segmentation(entry: Entry) -> bool:
    return bool({"fed-polyp", "fed-prostate", "fed-fundus", "octa-500"} & set(entry.presets))


def test_every_difference_is_used_and_its_settings_are_valid_and_not_the_presets() -> None:
    assert {key for entry in entries() for key in entry.differs} == set(differences())
    found = 0
    for text in differences().values():
        words = re.findall(r"(?<!\S)[a-z_.]+=[a-z0-9]+(?!\S)", text)
        for word in words:
            assert load("fed-polyp", parse([word])) != load("fed-polyp"), word
        found += len(words)
    assert found == 9


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(FealError, match="There is no table or figure 'tabel-6': did you mean 'table-6'"):
        entry_named("tabel-6")


def test_the_page_is_up_to_date() -> None:
    assert (PROJECT / "docs" / "paper-map.md").read_text() == paper_page()


def test_the_page_holds_every_command_and_number() -> None:
    page = paper_page()
    blocks = "".join(re.findall(r"```\n(.*?)```", page, flags=re.DOTALL)).splitlines()
    assert blocks == [line for entry in entries() for line in entry.commands()]
    for link in re.findall(r"\]\(#([^)]*)\)", page):
        assert f"\n## {link}\n" in page


def test_the_map_has_no_field_that_nobody_reads() -> None:
    content = yaml.safe_load((PROJECT / "src/feal/config/paper.yaml").read_text())
    assert set(content) == {"differences", "entries"}
