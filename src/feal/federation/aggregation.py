"""Average the weights of sites (FedAvg)."""

from collections.abc import Mapping, Sequence

import torch

from feal.federation.protocol import TrainReply
from feal.rundir.journal import Weights


def fedavg(states: Sequence[Mapping[str, torch.Tensor]], weights: Sequence[float]) -> dict[str, torch.Tensor]:
    """Average model states with weights: sum_k w_k state_k / sum_k w_k.

    Floating tensors, BatchNorm statistics included, are added in float64 in the given order and returned in
    their own type; integer counters take the maximum. One tensor of one state is read at a time.

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
    # A state of weight 0 is not read: it may hold anything.
    states = [state for state, weight in zip(states, weights, strict=True) if weight > 0]
    shares = [weight / total for weight in weights if weight > 0]
    return {name: _average(name, states, shares) for name in sorted(states[0])}


def _average(name: str, states: Sequence[Mapping[str, torch.Tensor]], shares: Sequence[float]) -> torch.Tensor:
    first = states[0][name].detach()
    floating = first.is_floating_point()
    result = first.to(torch.float64) * shares[0] if floating else first.clone()
    for state, share in zip(states[1:], shares[1:], strict=True):
        tensor = state[name].detach()
        if tensor.shape != first.shape:
            raise ValueError(f"states differ in the shape of {name}: {tuple(first.shape)}, {tuple(tensor.shape)}")
        if floating:
            result.add_(tensor, alpha=share)
        else:
            torch.maximum(result, tensor, out=result)
    return result.to(first.dtype)


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
