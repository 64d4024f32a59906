"""Build the networks of a site, read its labelled samples, and train on them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch

from feal.data import PreparedSet, PreparedSite
from feal.data.augment import augment as augment_images
from feal.data.augment import normalise
from feal.data.samples import Rows
from feal.errors import FealError
from feal.federation.site.adam import Adam
from feal.losses import Objective
from feal.models import Network, build_model
from feal.rundir.site_store import Store
from feal.selection import Role
from feal.settings import Component, Task, Trainable, Training, Transforms
from feal.tensors import Tensors, all_finite, mixed_precision, to_device

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
ENOUGH_ACCURACY = 0.99
"""The training accuracy at which the training of a model at one site alone ends."""


class Inputs(Protocol):
    """Samples of one site by their array rows, ready for a network on its device."""

    def read(self, rows: Rows) -> torch.Tensor:
        """Read samples for evaluation and selection, [b, ...]."""

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read samples for training, transformed at random together with their classes [b] or masks [b, H, W]."""


class Images:
    """Read the images themselves, transformed and normalised."""

    def __init__(self, site: PreparedSite, transforms: Transforms, *, device: torch.device) -> None:
        self._site = site
        self._transforms = transforms
        self._device = device

    def read(self, rows: Rows) -> torch.Tensor:
        """Read images, float32 [b, channels, height, width]."""
        images = to_device(self._site.read(rows), self._device)
        return to_device(normalise(images, self._transforms, task=self._site.task), self._device)

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read images with new random transforms, and their masks transformed alike."""
        images = to_device(self._site.read(rows), self._device)
        if self._transforms == Transforms():
            return images, to_device(targets, self._device)
        images, targets = augment_images(images, to_device(targets, self._device), self._transforms, generator)
        return to_device(images, self._device), targets


class LabelledSamples:
    """The labelled samples of a site, by number in the order of their ids.

    Masks are read for every batch: all of them may be more than fits into memory.
    """

    def __init__(self, store: Store, site: PreparedSite, *, inputs: Inputs, task: Task) -> None:
        self._store = store
        self._inputs = inputs
        self._ids = store.labelled()
        self._rows = site.rows(self._ids)
        self._classes = torch.from_numpy(store.class_labels()) if task == "classification" else None

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs on the device, and classes [b] or masks [b, height, width]."""
        return self._inputs.read(self._rows[batch.numpy()]), self.targets(batch)

    def read_augmented(self, batch: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs and targets with random transforms, both on the device."""
        return self._inputs.read_augmented(self._rows[batch.numpy()], self.targets(batch), generator)

    def targets(self, batch: torch.Tensor) -> torch.Tensor:
        """Return classes [b], or masks uint8 [b, height, width]."""
        if self._classes is not None:
            return self._classes[batch]
        masks = [self._store.mask(self._ids[number]) for number in batch.tolist()]
        return torch.from_numpy(np.stack(masks))


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of local training: weights, Adam's moments, and the mean loss of the last epoch."""

    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    loss: float


class Trainer:
    """Train networks on all labelled samples of a site; a round has `steps` communication rounds."""

    def __init__(
        self,
        samples: LabelledSamples,
        *,
        objective: Objective,
        training: Training,
        steps: int,
        device: torch.device,
    ) -> None:
        self.samples = samples
        self._objective = objective
        self._training = training
        self._steps = steps
        self._device = device

    def train(
        self,
        network: Network,
        *,
        step: int,
        epochs: int,
        order: torch.Generator,
        augment: torch.Generator,
        moments: Tensors | None = None,
        lr: float | None = None,
    ) -> TrainingResult:
        """Train a network in place, from the weights it has.

        Args:
            network: the network.
            step: communication round, for the loss's annealing and the learning rate.
            epochs: passes over the samples.
            order: decides the order of the samples.
            augment: decides the random transforms of their images.
            moments: Adam's state after the previous communication round; None to start without.
            lr: the learning rate; by default the schedule's.

        Raises:
            FealError: the loss or a weight is not finite.
        """
        network.to(self._device).train()
        lr = lr or learning_rate(self._training, step=step, steps=self._steps)
        optimizer = Adam(network, lr=lr, weight_decay=self._training.weight_decay, moments=moments)
        loss = torch.zeros((), dtype=torch.float64)
        for _ in range(epochs):
            loss = self._train_epoch(network, optimizer, step=step, order=order, augment=augment)
        if self._training.batch_norm == "recompute":
            self._recompute_statistics(network)
        weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
        if not all_finite((loss, *weights.values())):
            raise FealError("Training diverged to infinite weights: start a new run with a lower training.lr.")
        return TrainingResult(weights=weights, moments=optimizer.collect_moments(), loss=float(loss))

    def train_alone(
        self,
        network: Network,
        *,
        epochs: int,
        order: torch.Generator,
        augment: torch.Generator,
        batch_size: int,
        is_trained: bool = False,
    ) -> Network:
        """Train until 99 % of the labelled samples (or pixels) are predicted correctly, or for `epochs` epochs.

        A network from the initial weights trains at the full learning rate, its epochs count as communication
        rounds; one that `is_trained` is fine-tuned as in the last communication round.
        """
        moments: Tensors | None = None
        for epoch in range(epochs if len(self.samples) else 0):
            if epoch and self._accuracy(network, batch_size) >= ENOUGH_ACCURACY:
                break
            moments = self.train(
                network,
                step=self._steps - 1 if is_trained else epoch,
                epochs=1,
                order=order,
                augment=augment,
                moments=moments,
                lr=None if is_trained else self._training.lr,
            ).moments
        return network

    def _train_epoch(
        self,
        network: Network,
        optimizer: Adam,
        *,
        step: int,
        order: torch.Generator,
        augment: torch.Generator,
    ) -> torch.Tensor:
        """Train on every sample once and return the mean loss."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        count = 0
        for batch in draw_batches(len(self.samples), self._training.batch_size, order):
            network.zero_grad(set_to_none=True)
            inputs, target = self.samples.read_augmented(batch, augment)
            with mixed_precision(self._device):
                logits = network(inputs)
            loss = self._objective(logits.float(), target, step)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
            count += len(batch)
        return (total / count).cpu()

    @torch.no_grad()
    def _recompute_statistics(self, network: Network) -> None:
        """Set the statistics of every batch norm to their means over the labelled samples, by the present weights.

        Running averages start at mean 0 and variance 1 and forget that by a tenth a batch. A layer whose true
        variance is smaller shrinks its output meanwhile; after dozens of layers nothing of the image is left.
        """
        norms = [module for module in network.eval().modules() if isinstance(module, BATCH_NORMS)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.train().momentum = None  # the mean over all batches
        for batch in torch.arange(len(self.samples) if norms else 0).split(max(2, self._training.batch_size)):
            if len(batch) > 1:
                network(self.samples.read(batch)[0])
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    @torch.no_grad()
    def _accuracy(self, network: Network, batch_size: int) -> float:
        network.eval()
        correct = total = 0
        for batch in torch.arange(len(self.samples)).split(batch_size):
            inputs, target = self.samples.read(batch)
            correct += int((network(inputs).argmax(1).cpu() == target).sum())
            total += target.numel()
        return correct / total


def build_network(
    role: Role, weights: Tensors, *, data: PreparedSet, model: Component, part: Trainable, device: torch.device
) -> Network:
    """Return this process's network for a role, with these weights: it is shared by all sites."""
    shape = (data.task, len(data.classes), data.channels, data.height, data.width)
    network = _blank_network(role, model.model_dump_json(), shape, part)
    network.load_state_dict(weights)
    network.zero_grad()
    return network.to(device)


@lru_cache(maxsize=8)
def _blank_network(role: Role, model: str, shape: tuple[Task, int, int, int, int], part: Trainable) -> Network:
    """Build a network once for each role: that takes ten times longer than to load weights."""
    del role
    task, classes, channels, height, width = shape
    component = Component.model_validate_json(model)
    with torch.random.fork_rng(devices=[]):
        return build_model(
            component.name,
            params=component.params,
            task=task,
            classes=classes,
            channels=channels,
            height=height,
            width=width,
        ).keep_part(part)


def draw_batches(samples: int, batch_size: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Split a random order of 0..samples-1 into batches, none of them of one sample.

    BatchNorm cannot train on a single sample: a last one joins the batch before it, and an only one is taken
    twice.

    >>> [len(batch) for batch in draw_batches(9, 4, torch.Generator().manual_seed(0))]
    [4, 5]
    """
    order = torch.randperm(samples, generator=generator)
    if samples == 1:
        return [order.repeat(2)]
    batches = list(order.split(max(2, batch_size)))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def learning_rate(training: Training, *, step: int, steps: int) -> float:
    """Return the learning rate of a communication round: a tenth from half of them on, under `schedule: half`."""
    late = training.schedule == "half" and 2 * step >= steps
    return training.lr * (0.1 if late else 1.0)
