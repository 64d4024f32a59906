import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.annotation import Answer, Query
from feal.data import PreparedSet
from feal.errors import FealError
from feal.federation.site.training import (
    LabelledSamples,
    Trainer,
    TrainingResult,
    build_network,
    draw_batches,
    learning_rate,
)
from feal.losses import PlainCrossEntropy
from feal.models import Network, build_model
from feal.rundir.site_store import Store
from feal.selection import Role
from feal.settings import Component, Trainable, Training
from feal.tensors import Tensors

IMAGES = torch.rand(9, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(9) % 2


class Samples:
    """Labelled images in memory."""

    def __init__(self, images: torch.Tensor, count: int) -> None:
        self._images = images
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read_augmented(self, batch: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return self._images[batch], TARGETS[batch]

    def read(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._images[batch], TARGETS[batch]


def _train(
    *,
    moments: dict[str, torch.Tensor] | None = None,
    weights: dict[str, torch.Tensor] | None = None,
    lr: float = 1e-3,
    seed: int = 0,
    images: torch.Tensor = IMAGES,
    samples: int = len(TARGETS),
    local_epochs: int = 1,
    weight_decay: float = 0.0,
    batch_norm: str = "running",
    model: str = "tiny-cnn",
) -> TrainingResult:
    torch.manual_seed(1)
    network = build_model(model, task="classification", classes=2, channels=3, height=32, width=32)
    if weights is not None:
        network.load_state_dict(weights)
    labelled: Any = Samples(images, samples)
    trainer = Trainer(
        labelled,
        objective=PlainCrossEntropy(),
        training=Training(lr=lr, batch_size=4, weight_decay=weight_decay, batch_norm=batch_norm),
        steps=2,
        device=torch.device("cpu"),
    )
    return trainer.train(
        network,
        step=0,
        epochs=local_epochs,
        order=torch.Generator().manual_seed(seed),
        augment=torch.Generator(),
        moments=moments,
    )


@given(st.integers(1, 70), st.integers(1, 20))
def test_batches_are_a_partition_without_single_samples(samples: int, batch_size: int) -> None:
    cut = draw_batches(samples, batch_size, torch.Generator().manual_seed(0))
    assert all(len(batch) >= 2 for batch in cut)
    assert all(len(batch) <= max(batch_size, 2) + 1 for batch in cut)
    if samples > 1:
        assert sorted(torch.cat(cut).tolist()) == list(range(samples))
    else:
        assert cut[0].tolist() == [0, 0]


def test_it_is_adam_as_torch_has_it() -> None:
    torch.manual_seed(1)
    network = build_model("tiny-cnn", task="classification", classes=2, channels=3, height=32, width=32).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=0.1)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(2):
        losses = []
        for batch in draw_batches(9, 4, generator):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(IMAGES[batch]), TARGETS[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item() * len(batch))
    trained = _train(local_epochs=2, weight_decay=0.1)
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(trained.weights[name], tensor)
    assert trained.loss == pytest.approx(sum(losses) / 9, rel=1e-6)


def test_the_loss_of_a_lone_sample_is_its_own() -> None:
    """It is taken twice for BatchNorm's sake, and counts once."""
    torch.manual_seed(1)
    network = build_model("tiny-cnn", task="classification", classes=2, channels=3, height=32, width=32).train()
    expected = torch.nn.functional.cross_entropy(network(IMAGES[[0, 0]]), TARGETS[[0, 0]])
    assert _train(samples=1).loss == pytest.approx(expected.item(), rel=1e-6)


def test_moments_carry_over_as_if_training_had_not_paused() -> None:
    first = _train(seed=0)
    second = _train(seed=1, moments=first.moments, weights=first.weights)
    anew = _train(seed=1, weights=first.weights)
    assert second.moments["step"][0].item() == 2 * first.moments["step"][0].item()
    assert not torch.equal(second.moments["exp_avg"], anew.moments["exp_avg"])
    name = next(iter(first.weights))
    assert not torch.equal(second.weights[name], anew.weights[name])


def test_a_loss_that_is_not_finite_is_said() -> None:
    with pytest.raises(FealError, match="diverged"):
        _train(images=torch.full_like(IMAGES, math.inf))


def test_the_learning_rate_falls_at_half_of_the_communication_rounds() -> None:
    rates = [learning_rate(Training(lr=1.0), step=step, steps=5) for step in range(5)]
    assert rates == [1.0, 1.0, 1.0, 0.1, 0.1]
    assert learning_rate(Training(lr=1.0, schedule="none"), step=4, steps=5) == 1.0


class Rows:
    """A site and its inputs: a sample is its letter's number."""

    def rows(self, ids: list[str]) -> np.ndarray:
        return np.array([ord(sample) for sample in ids], dtype=np.int64)

    def read(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "site.sqlite")
    yield store
    store.close()


def _label(store: Store, samples: str, labels: Any) -> None:
    with store.transaction():
        store.add_queries([Query(sample=sample, round=1, rank=1, score=0.5, model="m") for sample in "abcde"])
        store.add_answers([Answer(sample=s, label=n, by="me") for s, n in zip(samples, labels, strict=True)])


def test_a_batch_has_the_masks_of_its_samples(store: Store) -> None:
    masks = np.random.default_rng(0).integers(0, 3, (4, 7, 5)).astype(np.uint8)
    _label(store, "abde", masks)
    rows: Any = Rows()
    inputs, found = LabelledSamples(store, rows, inputs=rows, task="segmentation").read(torch.tensor([3, 0, 3]))
    assert found.dtype == torch.uint8
    assert np.array_equal(found.numpy(), masks[[3, 0, 3]])
    assert [chr(row) for row in inputs.tolist()] == ["e", "a", "e"]


def test_a_batch_has_the_classes_of_its_samples(store: Store) -> None:
    _label(store, "ca", [2, 7])
    rows: Any = Rows()
    samples = LabelledSamples(store, rows, inputs=rows, task="classification")
    assert len(samples) == 2
    assert samples.targets(torch.tensor([1, 0, 1])).tolist() == [2, 7, 2]


def _build(role: Role, weights: Tensors, *, part: Trainable = "all") -> Network:
    shape = {"task": "classification", "classes": ("a", "b"), "channels": 3, "height": 32, "width": 32}
    model = Component(name="tiny-cnn", dropout=0.25)
    data = cast(PreparedSet, SimpleNamespace(**shape))
    return build_network(role, weights, data=data, model=model, part=part, device=torch.device("cpu"))


def test_a_network_is_built_once_for_a_role_and_gets_the_weights_of_each_message() -> None:
    shape = {"task": "classification", "classes": 2, "channels": 3, "height": 32, "width": 32}
    states = [build_model("tiny-cnn", **shape).state_dict() for _ in range(2)]
    first = _build("global", states[0])
    sum(parameter.sum() for parameter in first.parameters()).backward()
    other = _build("local", states[0])
    again = _build("global", states[1])
    assert again is first
    assert other is not first
    assert all(parameter.grad is None for parameter in again.parameters())
    for network, state in ((again, states[1]), (other, states[0])):
        assert all(torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items())


def test_a_network_of_a_part_is_another_one() -> None:
    shape = {"task": "classification", "classes": 2, "channels": 3, "height": 32, "width": 32}
    whole = build_model("tiny-cnn", **shape)
    head = build_model("tiny-cnn", **shape).keep_part("head")
    built = [_build("global", net.state_dict(), part=net.part) for net in (whole, head)]
    assert [network.part for network in built] == ["all", "head"]
    assert built[0] is not built[1]


def test_statistics_are_computed_again_by_the_final_weights() -> None:
    """The first norm sees the convolved images: its statistics are the means of the batches' by hand."""
    running, recomputed = _train(), _train(batch_norm="recompute")
    trained = {name for name in running.weights if "running" not in name and "tracked" not in name}
    assert all(torch.equal(running.weights[name], recomputed.weights[name]) for name in trained)
    network = build_model("efficientnet-b0", task="classification", classes=2, channels=3, height=32, width=32)
    found = _train(batch_norm="recompute", model="efficientnet-b0").weights
    network.load_state_dict(found)
    with torch.no_grad():
        maps = [network.conv_stem(batch) for batch in IMAGES.split(4)[:2]]  # a last batch of one has no variance
    mean = torch.stack([part.mean((0, 2, 3)) for part in maps]).mean(0)
    variance = torch.stack([part.var((0, 2, 3)) for part in maps]).mean(0)
    torch.testing.assert_close(found["bn1.running_mean"], mean)
    torch.testing.assert_close(found["bn1.running_var"], variance)
    assert int(found["bn1.num_batches_tracked"]) == 2


def test_a_network_from_random_weights_sees_its_images_at_once() -> None:
    """With running statistics a deep network gives the same logits for every image after a few batches."""
    spread = {}
    for batch_norm in ("running", "recompute"):
        network = build_model("efficientnet-b0", task="classification", classes=2, channels=3, height=32, width=32)
        network.load_state_dict(_train(batch_norm=batch_norm, model="efficientnet-b0").weights)
        with torch.no_grad():
            spread[batch_norm] = float(network.eval()(IMAGES).std(0).mean())
    assert spread["running"] < 1e-3 < 0.05 < spread["recompute"]


class _Counting(Trainer):
    """Record how each epoch was trained."""

    epochs: list[tuple[int, float | None]]

    def train(self, network: Network, **options: Any) -> TrainingResult:
        self.epochs.append((options["step"], options["lr"]))
        return super().train(network, **options)


def _train_alone(*, epochs: int, is_trained: bool = False, samples: int = 9, lr: float = 1e-3) -> _Counting:
    torch.manual_seed(1)
    network = build_model("tiny-cnn", task="classification", classes=2, channels=3, height=32, width=32)
    labelled: Any = Samples(IMAGES, samples)
    trainer = _Counting(
        labelled,
        objective=PlainCrossEntropy(),
        training=Training(lr=lr, batch_size=4),
        steps=6,
        device=torch.device("cpu"),
    )
    trainer.epochs = []
    generators = {"order": torch.Generator().manual_seed(0), "augment": torch.Generator()}
    trained = trainer.train_alone(network, epochs=epochs, batch_size=4, is_trained=is_trained, **generators)
    assert trained is network
    return trainer


def test_training_alone_ends_at_99_percent_or_with_the_last_epoch() -> None:
    assert len(_train_alone(epochs=3, lr=1e-9).epochs) == 3
    assert 1 < len(_train_alone(epochs=200, lr=1e-2).epochs) < 200
    assert _train_alone(epochs=50, samples=0).epochs == []


def test_fine_tuning_goes_on_as_in_the_last_communication_round() -> None:
    assert _train_alone(epochs=3, lr=1e-9).epochs == [(0, 1e-9), (1, 1e-9), (2, 1e-9)]
    assert _train_alone(epochs=2, lr=1e-9, is_trained=True).epochs == [(5, None), (5, None)]
