"""Tensors as the bytes of a safetensors file, without a copy of them on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from safetensors import SafetensorError

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


def buffers(tensors: Tensors, *, metadata: Mapping[str, str] | None = None) -> list[Buffer]:
    """The parts of a safetensors file in order: its header, then each tensor's own memory.

    `safetensors.torch.save` gives the same file after three copies of all the data.

    Args:
        tensors: by name; the widest types come first in the file, so that all are aligned.
        metadata: texts for the header.

    Raises:
        KeyError: a tensor's type is none that the format knows.

    >>> from safetensors.torch import load
    >>> load(b"".join(buffers({"b": torch.ones(2), "a": torch.zeros(1)})))["b"]
    tensor([1., 1.])
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[Buffer] = []
    end = 0
    for name, tensor in ordered:
        data = memory(tensor)
        start, end = end, end + data.nbytes
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return [len(text).to_bytes(8, "little") + text, *parts]


def metadata_of(data: bytes) -> dict[str, str]:
    """The texts in a safetensors file's header.

    Raises:
        SafetensorError: the bytes are no such file.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return dict(header.get("__metadata__", {}))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SafetensorError(str(error)) from error


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, in place where it lies contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def tensors_digest(tensors: Tensors) -> str:
    """A hash of names, types, shapes and values, whatever the order.

    >>> a, b = torch.zeros(2), torch.ones(1)
    >>> tensors_digest({"a": a, "b": b}) == tensors_digest({"b": b, "a": a})
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memory(tensor))
    return digest.hexdigest()
