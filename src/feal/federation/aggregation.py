"""Average the weights of sites (FedAvg)."""

from collections.abc import Mapping, Sequence

import torch

from feal.federation.protocol import TrainReply
from feal.rundir.journal import Weights


def fedavg(states: Sequence[Mapping[str, torch.Tensor]], weights: Sequence[float]) -> dict[str, torch.Tensor]:
    """Average model states with weights: sum_k w_k state_k / sum_k w_k.

    Floating tensors, BatchNorm statistics included, are added in float64 in the given order and returned in
    their own type; integer counters take the maximum. One state is read at a time.

    Args:
        states: state dicts with the same names and shapes; each may read its tensors lazily.
        weights: one number for each state, none negative, not all zero.

    Raises:
        ValueError: no state, different lengths, bad weights, or states with different names or shapes.

    Example:
        >>> fedavg([{"w": torch.zeros(2)}, {"w": torch.ones(2)}], [1, 3])["w"]
        tensor([0.7500, 0.7500])
    """
    _check(states, weights)
    total = float(sum(weights))
    sums: dict[str, torch.Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for state, weight in zip(states, weights, strict=True):
        if weight == 0:
            continue  # it is not read, as it may hold anything
        for name, tensor in state.items():
            types[name] = tensor.dtype
            sums[name] = _add(sums.get(name), tensor.detach(), weight / total, name=name)
    return {name: sums[name].to(types[name]) for name in sorted(sums)}


def _add(before: torch.Tensor | None, tensor: torch.Tensor, share: float, *, name: str) -> torch.Tensor:
    """Return the sum with one more state's tensor, in the memory of the sum before."""
    if before is None:
        return tensor.to(torch.float64) * share if tensor.is_floating_point() else tensor.clone()
    if tensor.shape != before.shape:
        raise ValueError(f"states differ in the shape of {name}: {tuple(before.shape)}, {tuple(tensor.shape)}")
    if tensor.is_floating_point():
        return before.add_(tensor, alpha=share)
    return torch.maximum(before, tensor, out=before)


def _check(states: Sequence[Mapping[str, torch.Tensor]], weights: Sequence[float]) -> None:
    if not states or len(states) != len(weights):
        raise ValueError(f"{len(states)} states and {len(weights)} weights: each state needs one weight")
    if any(not 0 <= weight < float("inf") for weight in weights) or sum(weights) == 0:
        raise ValueError(f"weights {list(weights)} must be finite, not negative and not all zero")
    names = set(states[0])
    for state in states[1:]:
        if set(state) != names:
            raise ValueError(f"states differ in names: {sorted(names ^ set(state))}")


def aggregate(before: Weights, replies: Mapping[str, TrainReply]) -> Weights:
    """Average the weights that sites trained, weighted by their numbers of labels; `before` if none trained."""
    trained = [reply for reply in replies.values() if reply.weights is not None and reply.labelled]
    if not trained:
        return before
    return fedavg([reply.weights or {} for reply in trained], [reply.labelled for reply in trained])
