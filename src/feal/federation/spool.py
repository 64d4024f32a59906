"""Weights that came from sites, on the coordinator's disk until they are averaged.

So its memory does not grow with the number of sites: one reply is in it at a time, and then one tensor.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from feal.files import from_system, unwritable
from feal.tensors import memory


class Spool:
    """A folder of weights, one file a site; nothing in it outlives the communication round."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, site: str, weights: Mapping[str, torch.Tensor]) -> SpooledWeights:
        """Write a site's weights down and give them back as a mapping that reads them from there."""
        path = self._folder / f"{site}.weights"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(map(memory, weights.values()))
        except OSError as error:
            raise unwritable(path, error) from error
        return SpooledWeights(path, weights)

    def clear(self) -> None:
        """Forget all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)


class SpooledWeights(Mapping[str, torch.Tensor]):
    """Tensors in a file, each read when it is asked for."""

    def __init__(self, path: Path, like: Mapping[str, torch.Tensor]) -> None:
        self._path = path
        self._places: dict[str, tuple[int, torch.dtype, torch.Size]] = {}
        offset = 0
        for name, tensor in like.items():
            self._places[name] = (offset, tensor.dtype, tensor.shape)
            offset += tensor.numel() * tensor.element_size()

    def __getitem__(self, name: str) -> torch.Tensor:
        offset, dtype, shape = self._places[name]
        size = math.prod(shape) * dtype.itemsize
        # Read, not mapped: mapped pages would count as this process's memory.
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                data = bytearray(file.read(size))
        except OSError as error:
            raise from_system(error) from error
        return torch.frombuffer(data, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
