"""Where networks run, and how images reach them: decided once, since both change the last bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


def device_named(name: str) -> torch.device:
    """The device of a setting: `auto` is a GPU where there is one.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def on_device(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Images or maps [B, C, H, W] as networks get them: channels last, up to twice as fast on a CPU.

    Whatever else comes in the place of images keeps its form.

    >>> on_device(torch.zeros(2, 3, 4, 4), torch.device("cpu")).stride()
    (48, 1, 12, 3)
    """
    form = torch.channels_last if images.dim() == 4 else torch.preserve_format
    return images.to(device, memory_format=form)


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 in the forward pass of a GPU that computes with it; a CPU would not gain, and nothing changes."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=able)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads in torch's operations, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
