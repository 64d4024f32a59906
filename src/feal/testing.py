"""Check the contract of a strategy: the test template that every strategy inherits, in this project or outside.

A test module needs no more than

    class TestMine(StrategyContract):
        strategy = Mine
        params = {"weight": 0.5}

to have the contract checked for classification and segmentation; pytest must be installed. Tests that run whole
experiments carry the mark `slow`.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from feal.data import PreparedWriter
from feal.errors import FealError
from feal.evidential import build_loss
from feal.experiment.run import run
from feal.models import Network, build_model
from feal.selection import (
    STRATEGIES,
    Columns,
    Role,
    Selection,
    SelectionContext,
    Strategy,
    observe_samples,
    validate_selection,
)
from feal.settings import Component, Task

SAMPLES, SIDE, CLASSES = 20, 32, 3
Pictures = dict[str, torch.Tensor]
"""By sample id."""
MODEL: dict[Task, str] = {"classification": "tiny-cnn", "segmentation": "unet"}
MODEL_PARAMS: dict[Task, dict[str, Any]] = {"classification": {}, "segmentation": {"channels": 4}}


@lru_cache(maxsize=32)
def make_network(task: Task, *, seed: int) -> Network:
    """Build a small network, shared by all callers, whose logits are large enough to differ between images."""
    torch.manual_seed(seed)
    model = build_model(
        MODEL[task],
        task=task,
        classes=CLASSES,
        channels=3,
        height=SIDE,
        width=SIDE,
        params=MODEL_PARAMS[task],
    )
    model.head.weight.data.mul_(30 if task == "classification" else 1)  # Kaiming's weights are large as they are
    return model.eval()


def name_of(strategy: type[Strategy]) -> str:
    """Return what a configuration calls a strategy: its registered name, or its file and class."""
    for name in STRATEGIES.names():
        if STRATEGIES.get(name) is strategy and strategy.__module__.startswith("feal."):
            return name
    return f"{inspect.getfile(strategy)}:{strategy.__name__}"


def write_sites(root: Path, task: Task, *, hidden: int = 0, known: Sequence[str] = ()) -> Path:
    """Write two prepared sites of random images, with labels drawn by `hidden`, but for `known` samples."""
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
                labels=truth.astype(np.int16 if labels else np.uint8),
                splits=["test" if test else "train" for test in tested],
            )
    return root


class StrategyContract:
    """What holds for every strategy, whatever it computes."""

    strategy: ClassVar[type[Strategy]]
    params: ClassVar[Mapping[str, Any]] = {}
    """Values of the strategy's parameters; its defaults if there are none."""
    draws: ClassVar[bool] = False
    """Whether the selection depends on the seed."""
    runs: ClassVar[bool] = True
    """Whether to run whole experiments, too; other parameters of the same strategy need not."""
    samples: ClassVar[int] = 24

    def __init_subclass__(cls) -> None:
        """Leave out the tests that say nothing about this strategy."""
        super().__init_subclass__()
        if not hasattr(cls, "strategy"):
            return
        template: dict[str, Any] = {
            "test_a_hidden_label_is_never_read": cls.runs,
            "test_a_sample_that_is_not_finite_is_named": bool(cls().build().required_roles()),
        }
        for name, applies in template.items():
            setattr(cls, name, vars(StrategyContract)[name] if applies else None)

    def build(self) -> Strategy:
        """Return the strategy with its parameters."""
        return self.strategy(**self.params)

    @pytest.fixture(scope="class", params=["classification", pytest.param("segmentation", marks=pytest.mark.slow)])
    def task(self, request: pytest.FixtureRequest) -> Task:
        """Both tasks."""
        task: Task = request.param
        if task not in self.strategy.tasks:
            pytest.skip(f"{self.strategy.__name__} is for {' and '.join(self.strategy.tasks)}")
        return task

    @pytest.fixture(scope="class")
    def images(self) -> Pictures:
        """Random images with a few exact duplicates, by sample id."""
        pictures = torch.rand(self.samples, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        pictures[3] = pictures[5] = pictures[4]
        return {f"sample-{index:03}": picture for index, picture in enumerate(pictures)}

    @pytest.fixture(scope="class")
    def pool(self, images: Pictures, task: Task, tmp_path_factory: pytest.TempPathFactory) -> Columns:
        """Return what the strategy observes of all images."""
        return self.columns(images, task, tmp_path_factory.mktemp("pool"))

    def context(self, task: Task, *, loss: str | Component | None = None, **changes: object) -> SelectionContext:
        """Return a context with a few labels; a subclass changes what its strategy needs."""
        counts = torch.tensor([5.0, 2.0, 0.0], dtype=torch.float64)
        named = Component.model_validate(loss or self.strategy.default_loss)
        fields: dict[str, object] = {
            "task": task,
            "classes": CLASSES,
            "site_counts": counts,
            "total_counts": 3 * counts,
            "loss": build_loss(named),
            "class_count_scope": self.strategy.default_class_count_scope,
        }
        return SelectionContext(**{**fields, **changes})  # type: ignore[arg-type]

    def networks(self, task: Task) -> dict[Role, Network]:
        """Return a network for every role."""
        roles = sorted(self.build().required_roles())
        return {role: copy.deepcopy(make_network(task, seed=seed)) for seed, role in enumerate(roles)}

    def columns(
        self,
        images: Pictures,
        task: Task,
        scratch: Path,
        *,
        ids: Sequence[str] | None = None,
        batch_size: int = 8,
        networks: dict[Role, Network] | None = None,
        context: SelectionContext | None = None,
    ) -> Columns:
        """Return what the strategy observes of the images."""
        with observe_samples(
            ids or list(images),
            read=lambda batch: torch.stack([images[sample] for sample in batch]),
            observers=[self.build().observe],
            networks=networks or self.networks(task),
            context=context or self.context(task),
            batch_size=batch_size,
            scratch=scratch,
            device=torch.device("cpu"),
        ) as columns:
            return Columns(columns.ids, {name: value.clone() for name, value in columns.values.items()})

    def choose(
        self,
        pool: Columns,
        task: Task,
        budget: int,
        *,
        seed: int = 0,
        context: SelectionContext | None = None,
        labelled: Columns | None = None,
    ) -> Selection:
        """Return the validated selection, with other samples as labelled ones where the strategy needs these."""
        generator = torch.Generator().manual_seed(seed)
        known = {name: value[::3] / 2 for name, value in pool.values.items()}
        others = Columns([f"labelled {sample}" for sample in pool.ids[::3]], known)
        beside = (others if labelled is None else labelled) if self.build().needs_labelled else None
        selection = self.build().choose(pool, beside, context or self.context(task), budget, generator)
        validate_selection(selection, pool, budget, strategy=self.strategy.__name__)
        return selection

    @pytest.mark.parametrize("budget", [0, 1, 7, 24, 100])
    def test_gives_the_budget_in_distinct_samples(self, pool: Columns, task: Task, budget: int) -> None:
        assert len(self.choose(pool, task, budget).ids) == min(budget, len(pool))

    @pytest.mark.parametrize("samples", [0, 1])
    def test_small_pools(self, images: Pictures, task: Task, tmp_path: Path, samples: int) -> None:
        few = dict(list(images.items())[:samples])
        assert self.choose(self.columns(few, task, tmp_path), task, 5).ids == list(few)

    def test_nothing_is_labelled_yet(self, pool: Columns, task: Task) -> None:
        assert len(self.choose(pool, task, 6, labelled=Columns([], {})).ids) == 6

    def test_input_order_does_not_matter(
        self, pool: Columns, images: Pictures, task: Task, tmp_path: Path
    ) -> None:
        shuffled = self.columns(images, task, tmp_path, ids=list(images)[::-1])
        assert self.choose(shuffled, task, 6).ids == self.choose(pool, task, 6).ids

    def test_row_order_does_not_matter(self, pool: Columns, task: Task) -> None:
        for seed in range(3):
            order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
            permuted = Columns(
                [pool.ids[row] for row in order.tolist()],
                {name: value[order] for name, value in pool.values.items()},
            )
            assert self.choose(permuted, task, 6).ids == self.choose(pool, task, 6).ids

    def test_another_batch_size_gives_the_same_columns(
        self, pool: Columns, images: Pictures, task: Task, tmp_path: Path
    ) -> None:
        other = self.columns(images, task, tmp_path, batch_size=5)
        assert pool.values.keys() == other.values.keys()
        for name, column in pool.values.items():
            torch.testing.assert_close(column, other[name], rtol=1e-5, atol=1e-5)

    def test_the_seed_decides_where_something_is_drawn(self, pool: Columns, task: Task) -> None:
        selections = [tuple(self.choose(pool, task, 6, seed=seed).ids) for seed in (*range(6), *range(6))]
        assert selections[:6] == selections[6:]
        assert (len(set(selections)) > 1) == self.draws

    def test_nothing_of_the_input_is_changed(self, pool: Columns, task: Task) -> None:
        before = {name: value.clone() for name, value in pool.values.items()}
        self.choose(pool, task, 6)
        assert all(torch.equal(pool[name], value) for name, value in before.items())

    def test_zero_evidence_and_zero_features_still_give_a_selection(
        self, images: Pictures, task: Task, tmp_path: Path
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
        self, images: Pictures, task: Task, tmp_path: Path, counts: tuple[int, ...]
    ) -> None:
        labelled = torch.tensor(counts, dtype=torch.float64)
        context = self.context(task, site_counts=labelled, total_counts=labelled)
        pool = self.columns(images, task, tmp_path, context=context)
        assert len(self.choose(pool, task, 6, context=context).ids) == 6

    def test_models_that_know_one_class_only(self, images: Pictures, task: Task, tmp_path: Path) -> None:
        networks = self.networks(task)
        for model in networks.values():
            assert model.head.bias is not None
            model.head.bias.data[1] += 1e4
        pool = self.columns(images, task, tmp_path, networks=networks)
        assert len(self.choose(pool, task, 6).ids) == 6

    def test_a_sample_that_is_not_finite_is_named(self, images: Pictures, task: Task, tmp_path: Path) -> None:
        spoiled = {**images, "sample-007": torch.full((3, 32, 32), torch.nan)}
        with pytest.raises(FealError, match="sample-007"):
            self.columns(spoiled, task, tmp_path)

    def selections(self, data: Path, task: Task, out: Path) -> dict[str, str]:
        """Return what a run asks for in its first two rounds: the text of each site's files, by their names."""
        changes: dict[str, Any] = {
            "dataset": str(data),
            "model": {"name": MODEL[task], **MODEL_PARAMS[task]},
            "strategy": {"name": name_of(self.strategy), **self.params},
            "rounds": 2,
            "communication_rounds": 1,
            "budget": 4,
        }
        run("demo", out=out, **changes)
        files = sorted(out.glob("sites/*/selections/*.csv"))
        return {str(path.relative_to(out)): path.read_text() for path in files}

    @pytest.mark.slow
    def test_a_hidden_label_is_never_read(self, task: Task, tmp_path: Path) -> None:
        one = self.selections(write_sites(tmp_path / "one", task), task, tmp_path / "run")
        first = [line.split(",")[0] for name, text in one.items() if "round-001" in name for line in text.split()]
        other = write_sites(tmp_path / "other", task, hidden=1, known=first)
        assert self.selections(other, task, tmp_path / "again") == one
