"""Export a trained model into a directory: safetensors with a model card, ONNX and TorchScript."""

import copy
import warnings
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from feal.data.augment import normalise
from feal.errors import FealError
from feal.fileio import atomic_directory, write_json, write_tensors, write_text
from feal.inference.card import render_model_card
from feal.inference.model import INFO_FILE, WEIGHTS, TrainedModel, without_directory
from feal.models import Network, write_graph
from feal.selection import SelectionContext
from feal.settings import Transforms

Format = Literal["onnx", "torchscript", "both", "none"]
ONNX = "model.onnx"
TORCHSCRIPT = "model.torchscript"
CARD = "README.md"

_TOLERANCE = 1e-5


class InferenceGraph(nn.Module):
    """Computes (logits, expected probability) of images as prepared: what an exported graph does.

    The uncertainties are left out: ONNX has no digamma.
    """

    def __init__(self, network: Network, context: SelectionContext, transforms: Transforms) -> None:
        super().__init__()
        self.network = network
        self._context = context
        self._transforms = transforms

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.network(normalise(images, self._transforms, task=self._context.task))
        return logits, self._context.probability(logits)


def export_model(model: TrainedModel, out: Path, *, format: Format = "torchscript") -> list[Path]:
    """Write the model into the new directory `out`, which appears when everything is in it; return its files.

    Raises:
        FealError: `out` exists, or torch cannot write the network as such a graph.
    """
    wanted = {"both": {"onnx", "torchscript"}, "none": set()}.get(format, {format})
    if wanted and model.network.has_encoder:
        raise FealError(
            "A model on a frozen encoder has no graph of its own, since the encoder is a file beside it: "
            "export it with --format none."
        )
    with atomic_directory(out) as folder:
        network = copy.deepcopy(model.network).cpu()
        sha256 = write_tensors(folder / WEIGHTS, network.state_dict())
        info = model.info.model_copy(update={"sha256": sha256, "model": without_directory(model.info.model)})
        undescribed = {"input": {"fitting"}} if info.input.fitting is None else None
        write_json(folder / INFO_FILE, info.model_dump(mode="json", by_alias=True, exclude=undescribed))
        graph = InferenceGraph(network, model.context, info.transforms).eval().requires_grad_(False)
        images = _example(model)
        if "torchscript" in wanted:
            _write_torchscript(graph, images, folder / TORCHSCRIPT)
        if "onnx" in wanted:
            (folder / ONNX).write_bytes(_write_onnx(graph, images))
        write_text(folder / CARD, render_model_card(info, name=out.resolve().name, formats=wanted))
        names = sorted(path.name for path in folder.iterdir())
    return [out / name for name in names]


def _example(model: TrainedModel) -> torch.Tensor:
    """Return random images; more than one, as an exporter takes a batch of one for a constant."""
    size = model.info.input
    return torch.rand(3, size.channels, size.height, size.width, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _write_torchscript(graph: InferenceGraph, images: torch.Tensor, path: Path) -> None:
    with warnings.catch_warnings():
        # Sizes are checked in Python while tracing, which is fine: the size of the images is fixed.
        warnings.simplefilter("ignore", torch.jit._trace.TracerWarning)
        traced = torch.jit.trace(graph, images[:2], check_trace=False)
    torch.jit.save(traced, str(path))
    for expected, traced_output in zip(graph(images), torch.jit.load(str(path))(images), strict=True):
        if not torch.allclose(expected, traced_output, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise FealError(
                "The TorchScript graph computes other values than the network: leave it out (--format)."
            )


def _write_onnx(graph: InferenceGraph, images: torch.Tensor) -> bytes:
    try:
        return write_graph(graph, images, outputs=("logits", "probability"))
    except FealError as error:
        raise FealError(f"{error} Export it with --format torchscript.") from error
