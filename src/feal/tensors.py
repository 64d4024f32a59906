"""Encode tensors as safetensors bytes without copying them, and compute with them on a device."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import torch
from safetensors import SafetensorError
from torch.nn.utils import get_total_norm

Tensors = Mapping[str, torch.Tensor]
Buffer = bytes | memoryview

TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
ALIGNED = 8
PIXELS, IMAGES = 2**19, 64
"""The most pixels and the most images in a batch of evaluation and selection: larger ones are no faster."""


def encode_tensors(tensors: Tensors, *, metadata: Mapping[str, str] | None = None) -> list[Buffer]:
    """Return the parts of a safetensors file in order: the header, then each tensor's memory.

    `safetensors.torch.save` gives the same file but copies all data three times.

    Args:
        tensors: by name; the file stores the widest types first, so that all are aligned.
        metadata: strings for the header.

    Raises:
        KeyError: the format does not support a tensor's type.

    >>> from safetensors.torch import load
    >>> load(b"".join(encode_tensors({"b": torch.ones(2), "a": torch.zeros(1)})))["b"]
    tensor([1., 1.])
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[Buffer] = []
    end = 0
    for name, tensor in ordered:
        data = tensor_bytes(tensor)
        start, end = end, end + data.nbytes
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return [len(text).to_bytes(8, "little") + text, *parts]


def read_metadata(data: bytes) -> dict[str, str]:
    """Return the metadata strings in a safetensors file's header.

    Raises:
        SafetensorError: the bytes are not a safetensors file.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return dict(header.get("__metadata__", {}))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorError(str(error)) from error


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def hash_tensors(tensors: Tensors) -> str:
    """Hash names, types, shapes and values, independently of the order.

    >>> a, b = torch.zeros(2), torch.ones(1)
    >>> hash_tensors({"a": a, "b": b}) == hash_tensors({"b": b, "a": a})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()[:32]


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether no tensor holds a NaN or an infinity.

    >>> all_finite([torch.ones(2), torch.tensor(3)]), all_finite([torch.tensor([1.0, float("nan")])])
    (True, False)
    """
    floating = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    # One call for all tensors is many times faster than one for each. Squares may overflow where no value does; to
    # find the largest absolute value takes ten times longer.
    return not floating or any(bool(get_total_norm(floating, norm).isfinite()) for norm in (2.0, math.inf))


def resolve_batch_size(setting: int | Literal["auto"], *, height: int, width: int) -> int:
    """Return how many images of that size make a batch of evaluation and selection.

    `auto` is as many as have 2**19 pixels, at least 1 and at most 64: so a batch takes the same memory and stays
    in the processor's cache whatever the images' size.

    >>> [resolve_batch_size("auto", height=side, width=side) for side in (32, 128, 224, 384, 1024)]
    [64, 32, 10, 3, 1]
    """
    return min(IMAGES, max(1, PIXELS // (height * width))) if setting == "auto" else setting


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting: `auto` is a GPU where there is one.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def to_device(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Move images or maps [B, C, H, W] to a device, channels last: up to twice as fast on a CPU.

    Tensors of other dimensions, which stand for images, keep their memory format. A copy to a GPU starts from
    pinned memory and is not waited for.

    >>> to_device(torch.zeros(2, 3, 4, 4), torch.device("cpu")).stride()
    (48, 1, 12, 3)
    """
    form = torch.channels_last if images.dim() == 4 else torch.preserve_format
    if device.type == "cuda" and images.device.type == "cpu":
        images = images.pin_memory()
    return images.to(device, memory_format=form, non_blocking=device.type == "cuda")


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """Compute forward passes in bfloat16 on a GPU that supports it; a CPU would not gain and stays in float32."""
    able = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=able)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Run torch's operations with `count` threads, and with as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
