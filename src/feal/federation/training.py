"""A site's local training in one communication round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from feal.errors import FealError
from feal.federation.objective import Objective
from feal.federation.vetting import all_finite
from feal.models import Network, mixed_precision
from feal.settings import Training

Read = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What local training leaves: weights, Adam's moments, and the last epoch's mean loss."""

    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    loss: float


def train(
    network: Network,
    *,
    read: Read,
    samples: int,
    objective: Objective,
    training: Training,
    lr: float,
    moments: Mapping[str, torch.Tensor] | None,
    step: int,
    generator: torch.Generator,
    device: torch.device,
) -> Trained:
    """Train on all labelled samples for `training.local_epochs`.

    Args:
        network: holds the weights to start from, and is changed.
        read: what the network takes in, [b, ...] such as images, and the classes [b] or masks [b, height, width]
            to learn, of labelled samples by number [b]; both on the device.
        samples: how many are labelled.
        moments: Adam's state from the communication round before; None to begin anew.
        step: communication round, for the loss's annealing.
        generator: decides the order of the samples.

    Raises:
        FealError: the loss or a weight is not finite.
    """
    network.to(device).train()
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=training.weight_decay)
    if moments:
        _restore(optimizer, moments)
    loss = torch.zeros((), dtype=torch.float64)
    for _ in range(training.local_epochs):
        loss = _epoch(network, optimizer, objective, read, samples, training.batch_size, step, generator, device)
    weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    if not all_finite((loss, *weights.values())):
        raise FealError("Training diverged to infinite weights: start a new run with a lower training.lr.")
    return Trained(weights=weights, moments=_moments(optimizer), loss=float(loss))


def _epoch(
    network: Network,
    optimizer: torch.optim.Adam,
    objective: Objective,
    read: Read,
    samples: int,
    batch_size: int,
    step: int,
    generator: torch.Generator,
    device: torch.device,
) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64, device=device)
    looks = 0
    for batch in batches(samples, batch_size, generator):
        optimizer.zero_grad(set_to_none=True)
        inputs, target = read(batch)
        with mixed_precision(device):
            logits = network(inputs)
        loss = objective(logits.float(), target, step)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(batch)
        looks += len(batch)
    return (total / looks).cpu()


def batches(samples: int, batch_size: int, generator: torch.Generator) -> list[torch.Tensor]:
    """A random order of 0..samples-1 cut into batches, none of them of one sample.

    BatchNorm cannot train on a single sample: a last one joins the batch before it, and a lone one is taken
    twice.

    >>> [len(batch) for batch in batches(9, 4, torch.Generator().manual_seed(0))]
    [4, 5]
    """
    order = torch.randperm(samples, generator=generator)
    if samples == 1:
        return [order.repeat(2)]
    cut = list(order.split(max(2, batch_size)))
    if len(cut) > 1 and len(cut[-1]) == 1:
        cut[-2:] = [torch.cat(cut[-2:])]
    return cut


def learning_rate(training: Training, *, step: int, steps: int) -> float:
    """The learning rate of a communication round: a tenth from half of them on, under `schedule: half`."""
    late = training.schedule == "half" and 2 * step >= steps
    return training.lr * (0.1 if late else 1.0)


def _moments(optimizer: torch.optim.Adam) -> dict[str, torch.Tensor]:
    """Adam's state as one tensor a kind: a file of a thousand small ones takes many times longer to write."""
    parameters = optimizer.param_groups[0]["params"]
    known = [index for index, parameter in enumerate(parameters) if optimizer.state.get(parameter)]
    states = [optimizer.state[parameters[index]] for index in known]
    kinds = {
        name: torch.cat([state[name].detach().reshape(-1).cpu() for state in states])
        for name in (states[0] if states else ())
    }
    return {"parameters": torch.tensor(known), **kinds}


def _restore(optimizer: torch.optim.Adam, moments: Mapping[str, torch.Tensor]) -> None:
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
