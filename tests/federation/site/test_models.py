"""Models that a strategy looks at, seen by a strategy that notes their weights."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from safetensors.torch import load_file

from feal.data import PreparedSet
from feal.experiment import Result, resume, start
from feal.federation.site.models import SiteModels
from feal.models import build_model
from feal.rundir.layout import SiteDirectory
from feal.settings import Component, Settings, Trainable
from tests.rebuilding import rebuilt_sites
from tests.runs import Listener, differences, events, fingerprint, tiny, tiny_polyps

ROLES = ("finetuned", "global", "global_previous", "initial", "local", "local_only", "local_previous")
SPY = f"""
import torch
from feal.selection import Selection, Strategy, make_selection

class Spy(Strategy):
    roles = frozenset({ROLES!r})

    def observe(self, images, models, context):
        total = {{role: sum(p.double().sum() for p in models[role].module.parameters()) for role in self.roles}}
        return {{role: value.detach().repeat(len(images)) for role, value in total.items()}}

    def choose(self, pool, labelled, context, budget, generator):
        rows = torch.arange(budget)
        return make_selection(pool, rows, {{"score": torch.zeros(len(pool)), **dict(pool.values)}})
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
    task = "segmentation" if settings.model.name == "unet" else "classification"
    classes = 2 if task == "segmentation" else settings.dataset.params["classes"]
    network = build_model(settings.model.name, task=task, classes=classes, channels=3, height=32, width=32)
    return [name for name, _ in network.named_parameters()]


@pytest.fixture(scope="module", params=["classification", pytest.param("segmentation", marks=pytest.mark.slow)])
def three(
    request: pytest.FixtureRequest, spy: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Settings, Listener]:
    settings = (tiny if request.param == "classification" else tiny_polyps)(strategy=spy, rounds=3)
    listener = Listener()
    return start(settings, out=tmp_path_factory.mktemp("three") / "run", callback=listener), settings, listener


def test_the_first_selection_has_the_initial_model_for_those_before(three) -> None:
    result, settings, listener = three
    for roles in seen(result.folder, 2).values():
        assert roles["global_previous"] == roles["local_previous"] == roles["initial"]
        assert roles["initial"] == pytest.approx(weights(result.folder, "initial", settings), rel=1e-12)
    said = [note for note in listener.notes if "the initial model" in note]
    assert said == ["Round 1: the selection uses the initial model in place of the previous round's models."]
    assert [event["note"] for event in events(result.folder, "note") if "initial model" in event["note"]] == said


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
    with rebuilt_sites():
        rebuilt = start(settings, out=tmp_path / "run")
    assert differences(fingerprint(planned.folder), fingerprint(rebuilt.folder)) == []


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


def _site_models(folder: Path, *, part: Trainable = "all") -> SiteModels:
    shape = {"task": "classification", "classes": ("a", "b"), "channels": 3, "height": 32, "width": 32}
    model = Component(name="tiny-cnn", dropout=0.25)
    data = cast(PreparedSet, SimpleNamespace(**shape))
    return SiteModels(SiteDirectory(folder), data, model=model, part=part, device=torch.device("cpu"))


def test_a_network_is_built_once_for_a_role_and_gets_the_weights_of_each_message(tmp_path: Path) -> None:
    models = _site_models(tmp_path)
    shape = {"task": "classification", "classes": 2, "channels": 3, "height": 32, "width": 32}
    states = [build_model("tiny-cnn", **shape).state_dict() for _ in range(2)]
    first = models.build("global", states[0])
    sum(parameter.sum() for parameter in first.parameters()).backward()
    other = models.build("local", states[0])
    again = models.build("global", states[1])
    assert again is first
    assert other is not first
    assert all(parameter.grad is None for parameter in again.parameters())
    for network, state in ((again, states[1]), (other, states[0])):
        assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())


def test_a_network_of_a_part_is_another_one(tmp_path: Path) -> None:
    shape = {"task": "classification", "classes": 2, "channels": 3, "height": 32, "width": 32}
    whole = build_model("tiny-cnn", **shape)
    head = build_model("tiny-cnn", **shape).keep_part("head")
    built = [_site_models(tmp_path, part=net.part).build("global", net.state_dict()) for net in (whole, head)]
    assert [network.part for network in built] == ["all", "head"]
    assert built[0] is not built[1]
