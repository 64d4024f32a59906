"""Networks as ONNX graphs: they compute what torch does, and what cannot be run is said in one sentence."""

from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from feal.errors import FealError
from feal.models import MODELS, OnnxGraph, Trunk, build_model, pool_3x3, write_graph

IMAGES = torch.rand(5, 3, 96, 96, generator=torch.Generator().manual_seed(5))
TRUNKS = [(name, part) for name in MODELS.names() for part in MODELS.get(name).trainable_parts]
TRUNKS.remove(("frozen", "head"))  # an encoder is none of our networks: see test_encoders.py


def settled_trunk(name: str, part: str) -> Trunk:
    """A trunk with BatchNorm's statistics those of a batch, in evaluation mode."""
    task = MODELS.get(name).task
    torch.manual_seed(0)
    network = build_model(name, task=task, classes=4, channels=3, height=96, width=96).train()
    with torch.no_grad():
        network(IMAGES)
    return Trunk(network, part).eval().requires_grad_(False)


@pytest.mark.parametrize(("name", "part"), TRUNKS)
def test_the_trunk_of_every_network_is_that_of_torch(name: str, part: str) -> None:
    trunk = settled_trunk(name, part)
    content = write_graph(trunk, IMAGES[:3])
    expected = trunk(IMAGES)
    for threads in (1, 2):
        graph = OnnxGraph(content, threads=threads)
        for images in (IMAGES, IMAGES.to(memory_format=torch.channels_last)):
            torch.testing.assert_close(graph(images), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
        assert torch.equal(graph(IMAGES), graph(IMAGES))
    assert not trunk.training


class Pool(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return pool_3x3(maps)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 3), (4, 7), (6, 9), (8, 8), (14, 10)])
def test_pooling_to_any_size_can_be_written(size: tuple[int, int]) -> None:
    maps = torch.rand(4, 2, *size, generator=torch.Generator().manual_seed(0))
    graph = OnnxGraph(write_graph(Pool(), maps), threads=1)
    torch.testing.assert_close(graph(maps), pool_3x3(maps))


class Digamma(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.digamma(images)


class Broken(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise ArithmeticError("no such\nnumber")


@pytest.mark.parametrize(
    ("module", "reason"), [(Digamma, "UnsupportedOperatorError"), (Broken, "ArithmeticError: no such")]
)
def test_what_torch_cannot_write_is_one_sentence(module: type[nn.Module], reason: str) -> None:
    with pytest.raises(FealError, match=rf"^torch cannot write this network as ONNX \({reason}[^\n]*\)\.$"):
        write_graph(module(), IMAGES[:3])


class CountingImages(nn.Module):
    """Reads the number of images in Python, which tracing takes for a constant."""

    def forward(self, images: Tensor) -> Tensor:
        return images / len(images)


class Branching(nn.Module):
    """Branches in Python, of which tracing follows one side."""

    def forward(self, images: Tensor) -> Tensor:
        return images if len(images) == 2 else images.flip(3)


@pytest.mark.parametrize("module", [CountingImages, Branching])
def test_a_graph_that_computes_something_else_is_refused(module: type[nn.Module]) -> None:
    with pytest.raises(FealError, match="computes other values than torch"):
        write_graph(module(), IMAGES[:3])


def test_several_outputs_have_their_names() -> None:
    class Both(nn.Module):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            return images + 1, images.mean((2, 3))

    content = write_graph(Both(), IMAGES[:3], outputs=("more", "mean"))
    torch.testing.assert_close(OnnxGraph(content, threads=1)(IMAGES), IMAGES + 1)
    torch.testing.assert_close(OnnxGraph(content, threads=1, outputs=["mean"])(IMAGES), IMAGES.mean((2, 3)))
    with pytest.raises(FealError, match=r"^The graph has no output other: the nearest are more, mean\.$"):
        OnnxGraph(content, threads=1, outputs=["other"])


@pytest.mark.parametrize("content", [None, b"", b"not a graph", b"\x08\x07" * 400])
def test_a_file_that_is_none_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "encoder.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        FealError, match=rf"^{path} is not an ONNX graph that onnxruntime [\d.]+ can run \([^\n]+\): "
    ):
        OnnxGraph(path, threads=1)


def test_a_graph_of_something_else_than_images_is_refused(tmp_path: Path) -> None:
    one, two, both = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("a", "b", "sum"))
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["sum"])], "g", [one, two], [both])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "g.onnx"
    )
    with pytest.raises(FealError, match=r"g\.onnx takes a, b: give a graph that takes images alone\.$"):
        OnnxGraph(tmp_path / "g.onnx", threads=1)
