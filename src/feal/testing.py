"""The test template that every strategy inherits, from inside this project or outside.

A test module needs no more than

    class TestMine(StrategyContract):
        strategy = Mine

to have the contract checked for classification and segmentation; pytest must be installed, and Flower for the
comparison of engines. Tests that run whole experiments carry the mark `slow`.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from feal.config import load
from feal.data import PreparedWriter
from feal.errors import FealError
from feal.experiment import start
from feal.models import Network, build_model
from feal.selection import STRATEGIES, Choice, Columns, Context, Role, Strategy, check_choice, observed
from feal.settings import Evidence, QueryModel, Selection, Task

SAMPLES, SIDE = 20, 32
OTHERWISE = Selection(
    n=1, tau=0.1, rule="none", calibration="literal", terms=("aleatoric-local",), scope="head", local="local_only"
)
"""Every setting of the selection that a strategy can look at, other than by default."""
MODEL: dict[Task, str] = {"classification": "tiny-cnn", "segmentation": "unet"}


def network(task: Task, *, seed: int, classes: int) -> Network:
    """A small network with weights of its own, whose logits are large enough to differ from image to image."""
    torch.manual_seed(seed)
    model = build_model(MODEL[task], task=task, classes=classes, channels=3, height=32, width=32)
    model.head.weight.data.mul_(30)
    return model.eval()


def name_of(strategy: type[Strategy]) -> str:
    """What a configuration calls a strategy: its registered name, or its file and class."""
    for name in STRATEGIES.names():
        if STRATEGIES.get(name) is strategy and strategy.__module__.startswith("feal."):
            return name
    return f"{inspect.getfile(strategy)}:{strategy.__name__}"


def write_sites(root: Path, task: Task, *, hidden: int = 0, known: Sequence[str] = ()) -> Path:
    """Two prepared sites of random pictures, whose labels are drawn anew by `hidden` but for `known` samples."""
    labels = task == "classification"
    with PreparedWriter(
        root, name="noise", task=task, classes=("a", "b", "c"), channels=3, height=SIDE, width=SIDE
    ) as writer:
        for number, site in enumerate(("alder", "birch")):
            draw = np.random.default_rng(number)
            ids = [f"{site}-{index:02}" for index in range(SAMPLES)]
            shape = (SAMPLES,) if labels else (SAMPLES, SIDE, SIDE)
            images = draw.integers(0, 256, (SAMPLES, 3, SIDE, SIDE)).astype(np.uint8)
            truth: NDArray[np.int64] = draw.integers(0, 3, shape)
            tested = np.arange(SAMPLES) >= SAMPLES - 4
            if hidden:
                unknown = ~(np.isin(ids, known) | tested)
                truth[unknown] = np.random.default_rng((number, hidden)).integers(0, 3, shape)[unknown]
            writer.site(site).append(
                ids=ids,
                images=images,
                truth=truth.astype(np.int16 if labels else np.uint8),
                splits=["test" if test else "train" for test in tested],
            )
    return root


class StrategyContract:
    """What holds for every strategy, whatever it computes."""

    strategy: ClassVar[type[Strategy]]
    draws: ClassVar[bool] = False
    """Whether the choice depends on the seed."""
    query_model: ClassVar[QueryModel | None] = None
    """Which model is asked; the strategy's default if none is named."""
    selection: ClassVar[Selection] = Selection()
    runs: ClassVar[bool] = True
    """Whether to run whole experiments, too; another query model of the same strategy need not."""
    classes: ClassVar[int] = 3
    samples: ClassVar[int] = 24

    @pytest.fixture(params=["classification", pytest.param("segmentation", marks=pytest.mark.slow)])
    def task(self, request: pytest.FixtureRequest) -> Task:
        """Both tasks."""
        task: Task = request.param
        return task

    @pytest.fixture
    def images(self) -> dict[str, torch.Tensor]:
        """Random images with a few exact duplicates, by sample id."""
        pictures = torch.rand(self.samples, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        pictures[3] = pictures[5] = pictures[4]
        return {f"sample-{index:03}": picture for index, picture in enumerate(pictures)}

    def context(self, task: Task, **changes: object) -> Context:
        """A context of plain settings; a subclass changes what its strategy needs."""
        counts = torch.tensor([5.0, 2.0, 0.0], dtype=torch.float64)
        fields: dict[str, object] = {
            "task": task,
            "classes": self.classes,
            "site_counts": counts,
            "total_counts": 3 * counts,
            "selection": self.selection,
            "evidence": Evidence(),
            "loss": self.strategy.default_loss,
            "counts": self.strategy.default_counts,
            "query_model": self._asked(),
        }
        return Context(**{**fields, **changes})  # type: ignore[arg-type]

    def networks(self, task: Task) -> dict[Role, Network]:
        """A network of its own for every role."""
        return {
            role: network(task, seed=seed, classes=self.classes) for seed, role in enumerate(sorted(self._roles()))
        }

    def _asked(self) -> QueryModel | None:
        return self.query_model or next(iter(self.strategy.query_models), None)

    def _roles(self) -> frozenset[Role]:
        return self.strategy.roles_for(query_model=self._asked(), selection=self.selection)

    def columns(
        self,
        images: dict[str, torch.Tensor],
        task: Task,
        scratch: Path,
        *,
        ids: Sequence[str] | None = None,
        batch_size: int = 8,
        networks: dict[Role, Network] | None = None,
        context: Context | None = None,
    ) -> Columns:
        """What the strategy observes of the images."""
        with observed(
            list(images) if ids is None else ids,
            read=lambda batch: torch.stack([images[sample] for sample in batch]),
            observers=[self.strategy().observe],
            networks=self.networks(task) if networks is None else networks,
            context=self.context(task) if context is None else context,
            batch_size=batch_size,
            scratch=scratch,
            device=torch.device("cpu"),
            gradients=self.strategy.needs_gradients,
        ) as columns:
            return Columns(columns.ids, {name: value.clone() for name, value in columns.values.items()})

    def choose(
        self,
        pool: Columns,
        task: Task,
        budget: int,
        *,
        seed: int = 0,
        context: Context | None = None,
        labelled: Columns | None = None,
    ) -> Choice:
        """The strategy's choice, which is looked at, with other samples as labelled ones where it wants these."""
        generator = torch.Generator().manual_seed(seed)
        known = {name: value[::3] / 2 for name, value in pool.values.items()}
        others = Columns([f"labelled {sample}" for sample in pool.ids[::3]], known)
        beside = others if labelled is None else labelled
        context = self.context(task) if context is None else context
        choice = self.strategy().choose(
            pool, beside if self.strategy.needs_labelled else None, context, budget, generator
        )
        check_choice(choice, pool, budget, strategy=self.strategy.__name__)
        return choice

    @pytest.mark.parametrize("budget", [0, 1, 7, 24, 100])
    def test_gives_the_budget_in_distinct_samples(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, budget: int
    ) -> None:
        choice = self.choose(self.columns(images, task, tmp_path), task, budget)
        assert len(choice.ids) == min(budget, len(images))

    @pytest.mark.parametrize("samples", [0, 1])
    def test_small_pools(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, samples: int) -> None:
        few = dict(list(images.items())[:samples])
        assert self.choose(self.columns(few, task, tmp_path), task, 5).ids == list(few)

    def test_nothing_is_labelled_yet(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path)
        assert len(self.choose(pool, task, 6, labelled=Columns([], {})).ids) == 6

    def test_input_order_does_not_matter(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        straight = self.choose(self.columns(images, task, tmp_path), task, 6)
        shuffled = self.columns(images, task, tmp_path, ids=list(images)[::-1])
        assert self.choose(shuffled, task, 6).ids == straight.ids

    def test_row_order_does_not_matter(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path)
        for seed in range(3):
            order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
            permuted = Columns(
                [pool.ids[row] for row in order.tolist()],
                {name: value[order] for name, value in pool.values.items()},
            )
            assert self.choose(permuted, task, 6).ids == self.choose(pool, task, 6).ids

    def test_another_batch_size_gives_the_same_columns(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        one, other = self.columns(images, task, tmp_path), self.columns(images, task, tmp_path, batch_size=5)
        for name, column in one.values.items():
            torch.testing.assert_close(column, other[name], rtol=1e-5, atol=1e-5)

    def test_the_seed_decides_where_something_is_drawn(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        choices = [tuple(self.choose(pool, task, 6, seed=seed).ids) for seed in (*range(6), *range(6))]
        assert choices[:6] == choices[6:]
        assert (len(set(choices)) > 1) == self.draws

    def test_settings_that_it_does_not_name_change_nothing(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        spare = {
            name: getattr(OTHERWISE, name)
            for name in OTHERWISE.model_fields_set
            if not self.strategy.heeds(f"selection.{name}")
        }
        other = self.context(task, selection=self.selection.model_copy(update=spare))
        here, there = (self.columns(images, task, tmp_path, context=at) for at in (self.context(task), other))
        assert self.choose(there, task, 6, context=other).ids == self.choose(here, task, 6).ids

    def test_nothing_of_the_input_is_changed(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        before = {name: value.clone() for name, value in pool.values.items()}
        self.choose(pool, task, 6)
        assert all(torch.equal(pool[name], value) for name, value in before.items())

    def test_zero_evidence_and_zero_features_still_give_a_choice(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        networks = self.networks(task)
        for model in networks.values():
            for parameter in model.parameters():
                parameter.detach().zero_()
        pool = self.columns(images, task, tmp_path, networks=networks)
        assert len(self.choose(pool, task, 6).ids) == 6

    def test_samples_that_are_all_alike(self, task: Task, tmp_path: Path) -> None:
        alike = {f"sample-{index:03}": torch.full((3, 32, 32), 0.5) for index in range(9)}
        pool = self.columns(alike, task, tmp_path)
        assert len(self.choose(pool, task, 6).ids) == 6

    @pytest.mark.parametrize("counts", [(0, 0, 0), (9, 0, 0), (0, 3, 1), (10**9, 1, 1)])
    def test_classes_without_labels(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, counts: tuple[int, ...]
    ) -> None:
        labelled = torch.tensor(counts, dtype=torch.float64)
        context = self.context(task, site_counts=labelled, total_counts=labelled)
        pool = self.columns(images, task, tmp_path, context=context)
        assert len(self.choose(pool, task, 6, context=context).ids) == 6

    def test_models_that_know_one_class_only(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        networks = self.networks(task)
        for model in networks.values():
            assert model.head.bias is not None
            model.head.bias.data[1] += 1e4
        pool = self.columns(images, task, tmp_path, networks=networks)
        assert len(self.choose(pool, task, 6).ids) == 6

    def test_a_sample_that_is_not_finite_is_named(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        if not self._roles():
            return
        spoiled = {**images, "sample-007": torch.full((3, 32, 32), torch.nan)}
        with pytest.raises(FealError, match="sample-007"):
            self.columns(spoiled, task, tmp_path)

    def selections(self, data: Path, task: Task, out: Path, *, engine: str = "in-process") -> dict[str, str]:
        """What a run asks for in its first two rounds: the text of each site's files, by their names."""
        changes = {
            "dataset": str(data),
            "model": MODEL[task],
            "strategy": name_of(self.strategy),
            "query_model": self.query_model,
            "engine": engine,
            "rounds": 2,
            "communication_rounds": 1,
            "budget": 4,
            "selection": self.selection.model_dump(),
        }
        start(load("demo", changes), out=out)
        files = sorted(out.glob("sites/*/selections/*.csv"))
        return {str(path.relative_to(out)): path.read_text() for path in files}

    @pytest.mark.slow
    def test_a_hidden_label_is_never_read(self, task: Task, tmp_path: Path) -> None:
        if not self.runs:
            return
        one = self.selections(write_sites(tmp_path / "one", task), task, tmp_path / "run")
        first = [line.split(",")[0] for name, text in one.items() if "round-001" in name for line in text.split()]
        other = write_sites(tmp_path / "other", task, hidden=1, known=first)
        assert self.selections(other, task, tmp_path / "again") == one

    @pytest.mark.slow
    # Looked for, not imported: Ray would read its settings before the engine gives them.
    @pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray comes with the extra flower")
    def test_both_engines_choose_the_same(self, task: Task, tmp_path: Path) -> None:
        if not self.runs:
            return
        data = write_sites(tmp_path / "data", task)
        here = self.selections(data, task, tmp_path / "here")
        # Ray leaves the files and process handles that it opened to the garbage collector.
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            there = self.selections(data, task, tmp_path / "there", engine="flower-simulation")
            gc.collect()
        assert there == here
