"""A trained model as a folder of its own: safetensors with a model card, ONNX and TorchScript."""

from __future__ import annotations

import copy
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from feal.data.transforms import seen
from feal.errors import FealError
from feal.files import whole_folder, write_json, write_tensors, write_text
from feal.inference.card import model_card
from feal.inference.trained import FACTS, WEIGHTS, TrainedModel
from feal.models import Network
from feal.selection import Context
from feal.settings import Transforms

Format = Literal["onnx", "torchscript", "both", "none"]
ONNX = "model.onnx"
TORCHSCRIPT = "model.torchscript"
CARD = "README.md"

_TOLERANCE = 1e-5


class Answering(nn.Module):
    """Images as prepared to (logits, expected probability): what an exported graph computes.

    The uncertainties are left out: ONNX has no digamma.
    """

    def __init__(self, network: Network, context: Context, transforms: Transforms) -> None:
        super().__init__()
        self.network = network
        self._context = context
        self._transforms = transforms

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.network(seen(images, self._transforms, task=self._context.task))
        return logits, self._context.probability(logits)


def export(model: TrainedModel, out: Path, *, format: Format = "torchscript") -> list[Path]:
    """Write the model into the new folder `out`, which appears when everything is in it, and name its files.

    Raises:
        FealError: `out` is taken, ONNX is asked for and not installed, or a graph does not answer as the network.
    """
    wanted = {"both": {"onnx", "torchscript"}, "none": set()}.get(format, {format})
    if "onnx" in wanted:
        _check_onnx()
    with whole_folder(out) as folder:
        network = copy.deepcopy(model.network).cpu()
        sha256 = write_tensors(folder / WEIGHTS, network.state_dict())
        facts = model.facts.model_copy(update={"sha256": sha256})
        untold = {"input": {"fitting"}} if facts.input.fitting is None else None
        write_json(folder / FACTS, facts.model_dump(mode="json", by_alias=True, exclude=untold))
        answering = Answering(network, model.context, facts.transforms).eval().requires_grad_(False)
        images = _example(model)
        if "torchscript" in wanted:
            _write_torchscript(answering, images, folder / TORCHSCRIPT)
        if "onnx" in wanted:
            _write_onnx(answering, images, folder / ONNX)
        write_text(folder / CARD, model_card(facts, name=out.resolve().name, formats=wanted))
        names = sorted(path.name for path in folder.iterdir())
    return [out / name for name in names]


def _example(model: TrainedModel) -> torch.Tensor:
    """Random images; more than one, as an exporter takes a batch of one for a constant."""
    size = model.facts.input
    return torch.rand(3, size.channels, size.height, size.width, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _write_torchscript(answering: Answering, images: torch.Tensor, path: Path) -> None:
    with warnings.catch_warnings():
        # That sizes are checked in Python while tracing is no matter: the size of the images is fixed.
        warnings.simplefilter("ignore", torch.jit._trace.TracerWarning)
        traced = torch.jit.trace(answering, images[:2], check_trace=False)
    torch.jit.save(traced, str(path))
    for own, its in zip(answering(images), torch.jit.load(str(path))(images), strict=True):
        if not torch.allclose(own, its, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise FealError("The TorchScript graph does not answer as the network does: leave it out (--format).")


@torch.no_grad()
def _write_onnx(answering: Answering, images: torch.Tensor, path: Path) -> None:
    import onnx

    try:
        with _quiet():
            torch.onnx.export(
                answering,
                (images,),
                str(path),
                input_names=["images"],
                output_names=["logits", "probability"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise FealError("torch cannot write this network as ONNX: export it with --format torchscript.") from error
    onnx.checker.check_model(str(path), full_check=True)


def _check_onnx() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise FealError(f"ONNX needs {' and '.join(missing)}: install them with `pip install 'feal[onnx]'`.")


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter warns of its own internals, and of a torchvision that nobody asked for."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(before)
