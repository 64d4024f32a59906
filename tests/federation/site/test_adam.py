import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from feal.federation.site.adam import Adam

TRAIN = """
import sys, torch
from feal.federation.site.adam import Adam
layer = torch.nn.Linear(3, 2)
optimizer = Adam(layer, lr=0.1, weight_decay=0.1)
layer(torch.ones(1, 3)).sum().backward()
optimizer.step()
print("torch._dynamo" in sys.modules)
"""


class Layers(nn.Module):
    """Two layers in use, one that gets no gradient, one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.last = nn.Linear(5, 4), nn.Linear(3, 3), nn.Linear(4, 2)
        self.fixed = nn.Linear(2, 2).requires_grad_(False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fixed(self.last(self.first(rows).relu()))
        return result


def _layers() -> Any:
    torch.manual_seed(0)
    return Layers()


def _step(network: nn.Module, optimizer: Any, number: int) -> None:
    network.zero_grad(set_to_none=True)
    rows = torch.rand(7, 5, generator=torch.Generator().manual_seed(number))
    network(rows).square().sum().backward()
    optimizer.step()


def test_every_bit_is_that_of_torch() -> None:
    ours, theirs = _layers(), _layers()
    optimizer = Adam(ours, lr=1e-2, weight_decay=0.1)
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-2, weight_decay=0.1)
    for number in range(5):
        _step(ours, optimizer, number)
        _step(theirs, reference, number)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    assert not torch.equal(ours.first.weight, _layers().first.weight)


def test_moments_continue_as_if_training_had_not_paused() -> None:
    whole, parts = _layers(), _layers()
    optimizer = Adam(whole, lr=1e-2, weight_decay=0)
    for number in range(4):
        _step(whole, optimizer, number)
    moments = None
    for first in (0, 2):
        optimizer = Adam(parts, lr=1e-2, weight_decay=0, moments=moments)
        for number in range(first, first + 2):
            _step(parts, optimizer, number)
        moments = {name: tensor.clone() for name, tensor in optimizer.collect_moments().items()}
    for name, tensor in whole.state_dict().items():
        assert torch.equal(parts.state_dict()[name], tensor), name
    assert moments is not None
    assert moments["step"].tolist() == [4, 4, 0, 0, 4, 4]


def test_moments_lie_in_memory_as_their_parameters_do() -> None:
    torch.manual_seed(0)
    ours: Any = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    theirs = nn.Conv2d(3, 4, 3)
    theirs.load_state_dict(ours.state_dict())
    images = torch.rand(2, 3, 8, 8)
    for network, optimizer in (
        (ours, Adam(ours, lr=1e-2, weight_decay=0)),
        (theirs, torch.optim.Adam(theirs.parameters(), lr=1e-2)),
    ):
        network(images).square().sum().backward()
        optimizer.step()
        if isinstance(optimizer, Adam):
            assert [mean.stride() for mean in optimizer._means] == [ours.weight.stride(), ours.bias.stride()]
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_torch_s_compiler_is_not_imported() -> None:
    run = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.strip() == "False"


def test_a_gpu_updates_by_one_fused_kernel_with_its_steps_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that only pretends to be a GPU: every tensor must be there, and no step read back."""
    calls: dict[str, Any] = {}
    monkeypatch.setattr(
        "feal.federation.site.adam.adam", lambda *lists, **options: calls.update(options, lists=lists)
    )
    network = Layers().to("meta")
    monkeypatch.setattr("feal.federation.site.adam.FUSED", ("meta",))
    optimizer = Adam(network, lr=1e-2, weight_decay=0)
    network(torch.zeros(7, 5, device="meta")).sum().backward()
    optimizer.step()
    assert calls["fused"]
    assert {tensor.device.type for tensors in calls["lists"] for tensor in tensors} == {"meta"}
