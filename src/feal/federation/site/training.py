"""Train networks on the labelled samples of a site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from feal.errors import FealError
from feal.federation.site.inputs import LabelledSamples
from feal.losses import Objective
from feal.models import Network, mixed_precision
from feal.settings import Training
from feal.tensors import all_finite

MAX_EPOCHS, ENOUGH_ACCURACY = 50, 0.99
"""When the training of a model at one site alone ends: epochs, or training accuracy."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of local training: weights, Adam's moments, and the mean loss of the last epoch."""

    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    loss: float


class Trainer:
    """Train networks on all labelled samples of a site.

    Args:
        samples: the labelled samples.
        objective: the loss `(logits, target, communication round) -> scalar`.
        training: learning rate, batch size and so on.
        steps: communication rounds in a round, for the learning rate's schedule.
        device: where networks run.
    """

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
        moments: Mapping[str, torch.Tensor] | None = None,
        lr: float | None = None,
    ) -> TrainingResult:
        """Train a network in place on all labelled samples.

        Args:
            network: holds the weights to start from.
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
        optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=self._training.weight_decay)
        if moments:
            _restore_moments(optimizer, moments)
        loss = torch.zeros((), dtype=torch.float64)
        for _ in range(epochs):
            loss = self._train_epoch(network, optimizer, step=step, order=order, augment=augment)
        weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
        if not all_finite((loss, *weights.values())):
            raise FealError("Training diverged to infinite weights: start a new run with a lower training.lr.")
        return TrainingResult(weights=weights, moments=_collect_moments(optimizer), loss=float(loss))

    def finetune(self, network: Network, *, order: torch.Generator, augment: torch.Generator) -> Network:
        """Train for one more epoch, as in the last communication round."""
        if len(self.samples):
            self.train(network, step=self._steps - 1, epochs=1, order=order, augment=augment)
        return network

    def train_alone(
        self, network: Network, *, order: torch.Generator, augment: torch.Generator, batch_size: int
    ) -> Network:
        """Train for at most 50 epochs, until 99 % of the labelled samples (or pixels) are predicted correctly."""
        moments: Mapping[str, torch.Tensor] | None = None
        for epoch in range(MAX_EPOCHS if len(self.samples) else 0):
            result = self.train(
                network,
                step=epoch,
                epochs=1,
                order=order,
                augment=augment,
                moments=moments,
                lr=self._training.lr,
            )
            moments = result.moments
            if self._accuracy(network, batch_size) >= ENOUGH_ACCURACY:
                break
        return network

    def _train_epoch(
        self,
        network: Network,
        optimizer: torch.optim.Adam,
        *,
        step: int,
        order: torch.Generator,
        augment: torch.Generator,
    ) -> torch.Tensor:
        """Train on every sample once and return the mean loss."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        count = 0
        for batch in draw_batches(len(self.samples), self._training.batch_size, order):
            optimizer.zero_grad(set_to_none=True)
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
    def _accuracy(self, network: Network, batch_size: int) -> float:
        network.eval()
        correct = total = 0
        for batch in torch.arange(len(self.samples)).split(batch_size):
            inputs, target = self.samples.read(batch)
            correct += int((network(inputs).argmax(1).cpu() == target).sum())
            total += target.numel()
        return correct / total


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


def _collect_moments(optimizer: torch.optim.Adam) -> dict[str, torch.Tensor]:
    """Return Adam's state as one tensor of each kind: a file of a thousand small ones is slow to write."""
    parameters = optimizer.param_groups[0]["params"]
    known = [index for index, parameter in enumerate(parameters) if optimizer.state.get(parameter)]
    states = [optimizer.state[parameters[index]] for index in known]
    kinds = {
        name: torch.cat([state[name].detach().reshape(-1).cpu() for state in states])
        for name in (states[0] if states else ())
    }
    return {"parameters": torch.tensor(known), **kinds}


def _restore_moments(optimizer: torch.optim.Adam, moments: Mapping[str, torch.Tensor]) -> None:
    parameters = optimizer.param_groups[0]["params"]
    known = moments["parameters"].tolist()
    state: dict[int, dict[str, torch.Tensor]] = {index: {} for index in known}
    for name, tensor in moments.items():
        if name == "parameters":
            continue
        shapes = [torch.Size() if name == "step" else parameters[index].shape for index in known]
        for index, shape, part in zip(known, shapes, tensor.split([s.numel() for s in shapes]), strict=True):
            state[index][name] = part.reshape(shape).clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
