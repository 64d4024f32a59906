"""Models that a strategy looks at, seen by a strategy that notes their weights."""

import csv
from pathlib import Path

import pytest
from safetensors.torch import load_file

from feal.experiment import Result, resume, start
from feal.models import build_model
from feal.settings import Settings
from tests.runs import Listener, differences, events, fingerprint, tiny, tiny_polyps

ROLES = ("finetuned", "global", "global_previous", "initial", "local", "local_only", "local_previous")
SPY = f"""
import torch
from feal.selection import Choice, Strategy, chosen

class Spy(Strategy):
    roles = frozenset({ROLES!r})

    def observe(self, images, models, context):
        total = {{role: sum(p.double().sum() for p in models[role].module.parameters()) for role in self.roles}}
        return {{role: value.detach().repeat(len(images)) for role, value in total.items()}}

    def choose(self, pool, labelled, context, budget, generator):
        rows = torch.arange(budget)
        return chosen(pool, rows, {{"score": torch.zeros(len(pool)), **dict(pool.values)}})
"""


@pytest.fixture(scope="module")
def spy(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("spy") / "spy.py"
    path.write_text(SPY)
    return f"{path}:Spy"


def seen(run: Path, round_: int) -> dict[str, dict[str, float]]:
    """The sum of each role's parameters at each site when that round's samples were chosen."""
    sums = {}
    for site in sorted((run / "sites").iterdir()):
        with (site / "selections" / f"round-{round_:03}.csv").open() as file:
            row = next(csv.DictReader(file))
        sums[site.name] = {role: float(row[role]) for role in ROLES}
    return sums


def weights(run: Path, name: str, settings: Settings) -> float:
    """The sum of the parameters of the run's own file."""
    state = load_file(run / "weights" / f"{name}.safetensors")
    return float(sum(state[parameter].double().sum() for parameter in _parameters(settings)))


def _parameters(settings: Settings) -> list[str]:
    task = "segmentation" if settings.model == "unet" else "classification"
    classes = 2 if task == "segmentation" else settings.synthetic.classes
    network = build_model(settings.model, task=task, classes=classes, channels=3, height=32, width=32)
    return [name for name, _ in network.named_parameters()]


@pytest.fixture(scope="module", params=["classification", pytest.param("segmentation", marks=pytest.mark.slow)])
def three(
    request: pytest.FixtureRequest, spy: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Settings, Listener]:
    settings = (tiny if request.param == "classification" else tiny_polyps)(strategy=spy, rounds=3)
    listener = Listener()
    return start(settings, out=tmp_path_factory.mktemp("three") / "run", watcher=listener), settings, listener


def test_the_first_selection_has_the_initial_model_for_those_before(three) -> None:
    result, settings, listener = three
    for roles in seen(result.folder, 2).values():
        assert roles["global_previous"] == roles["local_previous"] == roles["initial"]
        assert roles["initial"] == pytest.approx(weights(result.folder, "initial", settings), rel=1e-12)
    said = [note for note in listener.notes if "the initial model stands in" in note]
    assert said == ["Round 1: the initial model stands in for the models of the round before in the selection."]
    assert [event["note"] for event in events(result.folder, "note") if "stands in" in event["note"]] == said


def test_later_ones_have_the_models_of_the_round_before(three) -> None:
    result, settings, _ = three
    before, now = seen(result.folder, 2), seen(result.folder, 3)
    for site, roles in now.items():
        assert roles["global_previous"] == before[site]["global"]
        assert roles["local_previous"] == before[site]["local"]
        assert roles["initial"] == before[site]["initial"]
        assert roles["global"] == pytest.approx(weights(result.folder, "round-002", settings), rel=1e-12)


def test_trained_ones_differ_from_what_they_started_from_and_between_sites(three) -> None:
    result, _, _ = three
    first, second = seen(result.folder, 3).values()
    for roles in (first, second):
        assert len(set(roles.values())) == len(ROLES)
    assert first["global"] == second["global"]
    assert first["finetuned"] != second["finetuned"]
    assert first["local_only"] != second["local_only"]


def test_a_run_that_is_extended_looks_back_as_one_that_was_planned_so(three, spy: str, tmp_path: Path) -> None:
    planned, settings, _ = three
    short = start(settings.model_copy(update={"rounds": 2}), out=tmp_path / "run")
    extended = resume(short.folder, settings=settings)
    assert differences(fingerprint(planned.folder), fingerprint(extended.folder)) == []


def test_rebuilt_from_disk_for_every_message_it_is_the_same(three, tmp_path: Path) -> None:
    planned, settings, _ = three
    fresh = start(settings.model_copy(update={"fresh": True}), out=tmp_path / "run")
    changed = differences(fingerprint(planned.folder), fingerprint(fresh.folder))
    assert changed == ["config.yaml"]


def test_only_what_may_be_wanted_again_is_kept(three) -> None:
    result, _, _ = three
    for site in (result.folder / "sites").iterdir():
        kinds = sorted(path.name.split("-")[0] for path in (site / "models").iterdir())
        # The last two rounds' global models, and the local one of the round before beside today's.
        assert kinds == ["global", "global", "initial", "local", "local", "optimizer"]


def test_a_strategy_that_does_not_look_back_keeps_nothing_for_it(tmp_path: Path) -> None:
    result = start(tiny(), out=tmp_path / "run")
    for site in (result.folder / "sites").iterdir():
        assert sorted(path.name.split("-")[0] for path in (site / "models").iterdir()) == ["local", "optimizer"]
    assert not any("stands in" in event["note"] for event in events(result.folder, "note"))
