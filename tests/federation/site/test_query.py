import csv
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from feal.errors import FealError
from feal.experiment import Result, resume, start
from feal.federation.site.query import Pool, SelectedPool, allowance, select_from_pool
from feal.losses import PlainLoss
from feal.models import build_model
from feal.rng import Address
from feal.selection import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy
from feal.selection.base import make_selection
from feal.settings import Settings, ceil_share
from tests.rebuilding import rebuilt_sites
from tests.runs import Listener, differences, events, fingerprint, tiny, tiny_polyps


@pytest.mark.parametrize(
    ("budget", "cap", "samples", "asked", "expected"),
    [
        (10, 0.85, 100, 0, 10),
        (10, 0.85, 100, 80, 5),
        (10, 0.85, 100, 85, 0),
        (10, 1.0, 7, 0, 7),
        (0.1, 0.85, 99, 0, 9),
        (0.29, 1.0, 100, 0, 29),
        (0.001, 0.85, 100, 0, 0),
        (500, 0.85, 20, 0, 17),
        (3, 0.85, 1, 0, 1),
    ],
)
def test_allowance(budget: float, cap: float, samples: int, asked: int, expected: int) -> None:
    assert allowance(budget, max_fraction=cap, samples=samples, asked=asked) == expected


@given(st.integers(1, 50), st.floats(0.05, 1.0), st.integers(1, 400))
def test_asking_again_and_again_ends_at_the_cap(budget: int, cap: float, samples: int) -> None:
    asked = 0
    while now := allowance(budget, max_fraction=cap, samples=samples, asked=asked):
        assert now <= budget
        asked += now
    assert asked == ceil_share(cap, samples) <= samples


@given(st.integers(0, 1000), st.integers(0, 10_000))
def test_a_share_is_what_it_is_in_exact_numbers(thousandths: int, number: int) -> None:
    exact = Fraction(thousandths, 1000) * number
    assert ceil_share(thousandths / 1000, number) == -(-exact.numerator // exact.denominator)


class Watching(Strategy):
    """Chooses the darkest, and keeps what it was given."""

    needs_labelled = True
    seen: ClassVar[list[Columns | None]] = []

    def observe(self, images: torch.Tensor, models: Models, context: SelectionContext) -> dict[str, torch.Tensor]:
        return {"light": images.flatten(1).mean(1)}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: SelectionContext,
        budget: int,
        generator: torch.Generator,
    ) -> Selection:
        self.seen.append(labelled)
        return make_selection(pool, pool["light"].argsort()[:budget], {"score": -pool["light"]})


def _pool(tmp_path: Path, reads: list[str]) -> Pool:
    light = {
        name: torch.full((3, 4, 4), value) for name, value in zip("abcde", (5.0, 1.0, 3.0, 2.0, 4.0), strict=True)
    }

    def read(ids: Sequence[str]) -> torch.Tensor:
        reads.extend(ids)
        return torch.stack([light[sample] for sample in ids])

    return Pool(
        ids=list("abc"),
        labelled=list("de"),
        read=read,
        networks={},
        scratch=tmp_path,
        device=torch.device("cpu"),
        batch_size=2,
    )


def _context() -> SelectionContext:
    counts = torch.ones(2, dtype=torch.float64)
    return SelectionContext(
        task="classification",
        classes=2,
        site_counts=counts,
        total_counts=counts,
        loss=PlainLoss(),
    )


def _select(
    strategy: Strategy, folder: Path, reads: list[str] | None = None, *, candidates: int | Literal["all"] = "all"
) -> SelectedPool:
    return select_from_pool(
        strategy,
        _pool(folder, [] if reads is None else reads),
        _context(),
        budget=2,
        candidates=candidates,
        diagnostics=False,
        address=Address(seed=0, purpose="select"),
    )


def test_a_strategy_that_asks_for_them_gets_the_labelled_samples_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = _select(Watching(), tmp_path)
    assert selected.selection.ids == ["b", "c"]
    labelled = Watching.seen.pop()
    assert labelled is not None
    assert labelled.ids == ["d", "e"]
    assert labelled["light"].tolist() == [2, 4]


def test_no_image_is_read_for_nothing(tmp_path: Path) -> None:
    reads: list[str] = []
    selected = _select(STRATEGIES.get("random")(), tmp_path, reads)
    assert len(selected.selection.ids) == 2
    assert reads == []


def test_a_model_that_the_site_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "roles", frozenset({"local_only"}))
    with pytest.raises(FealError, match="local_only"):
        _select(Watching(), tmp_path)


def test_a_part_of_the_pool_is_never_smaller_than_the_budget(tmp_path: Path) -> None:
    assert len(_select(STRATEGIES.get("random")(), tmp_path, candidates=1).selection.ids) == 2


def test_a_choice_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "choose", lambda *_: Selection(ids=["b", "b"]))
    with pytest.raises(FealError, match="Strategy Watching chose 2 samples, 1 different"):
        _select(Watching(), tmp_path)


def test_a_column_of_another_length_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "observe", lambda *_: {"light": torch.ones(1)})
    with pytest.raises(FealError, match=r"The column 'light' has the shape \[1\] for \d samples"):
        _select(Watching(), tmp_path)


ROLES = ("finetuned", "global", "global_previous", "initial", "local", "local_only", "local_previous")
SPY = f"""
import torch
from feal.selection import Selection, Strategy, make_selection

class Spy(Strategy):
    roles = frozenset({ROLES!r})
    training_epochs = 3

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
    task = "segmentation" if settings.model.name.endswith("unet") else "classification"
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
        assert kinds == ["global", "global", "initial", "local", "local"]


def test_a_strategy_that_does_not_look_back_keeps_nothing_for_it(tmp_path: Path) -> None:
    result = start(tiny(), out=tmp_path / "run")
    for site in (result.folder / "sites").iterdir():
        assert sorted(path.name.split("-")[0] for path in (site / "models").iterdir()) == ["local"]
    assert not any("stands in" in event["note"] for event in events(result.folder, "note"))
