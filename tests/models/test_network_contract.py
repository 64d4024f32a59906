"""The contract every network keeps: add a case here for a new one."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load, save

from feal.models import MODELS, Network, Output, build_model
from feal.settings import Task

CLASSES = 4


class Case(NamedTuple):
    name: str
    task: Task
    sizes: tuple[tuple[int, int], ...]
    features: int
    deep: int
    head_channels: int
    parameters: int


CASES = {
    case.name: case
    for case in (
        Case(
            name="tiny-cnn",
            task="classification",
            sizes=((16, 16), (32, 32), (33, 47), (96, 64)),
            features=128,
            deep=128 * 9,
            head_channels=128,
            parameters=98_196,
        ),
        Case(
            name="unet",
            task="segmentation",
            sizes=((32, 32), (48, 64), (304, 400)),
            features=256,
            deep=256 * 9,
            head_channels=32,
            parameters=3_179_956,
        ),
        Case(
            name="basic-unet",
            task="segmentation",
            sizes=((32, 32), (48, 64), (304, 400)),
            features=256,
            deep=256 * 9,
            head_channels=16,
            parameters=1_948_468,
        ),
        Case(
            name="efficientnet-b0",
            task="classification",
            sizes=((32, 32), (45, 61), (96, 96), (224, 224)),
            features=1280,
            deep=112 * 9,
            head_channels=1280,
            parameters=4_012_672,
        ),
        Case(
            name="unet-lite0",
            task="segmentation",
            sizes=((64, 64), (96, 128)),
            features=320,
            deep=112 * 9,
            head_channels=32,
            parameters=3_462_884,
        ),
        Case(
            name="efficientnet-lite0",
            task="classification",
            sizes=((32, 32), (45, 61), (96, 96)),
            features=1280,
            deep=112 * 9,
            head_channels=1280,
            parameters=3_376_132,
        ),
        Case(
            name="densenet-121",
            task="classification",
            sizes=((32, 32), (45, 61), (96, 96)),
            features=1024,
            deep=1024 * 9,
            head_channels=1024,
            parameters=6_957_956,
        ),
    )
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_model_has_a_case() -> None:
    assert sorted([*CASES, "frozen"]) == MODELS.names()  # frozen: see test_heads.py


@each_case
def test_shapes(case: Case) -> None:
    model = settled(case)
    for height, width in case.sizes:
        pixels = (height, width) if case.task == "segmentation" else ()
        output = observe(model, images(height, width))
        assert output.logits.shape == (2, CLASSES, *pixels)
        assert output.features.shape == (2, case.features)
        assert output.deep.shape == (2, case.deep)
        assert output.head_input.shape == (2, case.head_channels, *pixels)


@each_case
@pytest.mark.parametrize("channels", [1, 5])
def test_any_number_of_channels(case: Case, channels: int) -> None:
    model = build(case, channels=channels)
    assert model(images(*case.sizes[0], channels=channels)).shape[:2] == (2, CLASSES)


@each_case
def test_outputs_give_the_bits_of_forward(case: Case) -> None:
    model, batch = settled(case), images(*case.sizes[1])
    with torch.no_grad():
        assert torch.equal(model.outputs(batch).logits, model(batch))


@each_case
def test_outputs_in_training_mode_draw_as_forward_does(case: Case) -> None:
    model, batch = build(case).train(), images(*case.sizes[1])
    twin = copy.deepcopy(model)
    torch.manual_seed(3)
    logits = model(batch)
    torch.manual_seed(3)
    assert torch.equal(twin.outputs(batch).logits, logits)
    assert_same_state(twin, model)


@each_case
@pytest.mark.parametrize("training", [False, True])
def test_the_head_makes_the_logits(case: Case, training: bool) -> None:
    model = build(case).train(training)
    output = observe(model, images(*case.sizes[1]))
    assert torch.equal(model.head(output.head_input), output.logits)


@each_case
def test_features_tell_images_apart(case: Case) -> None:
    output = observe(settled(case), images(*case.sizes[1]))
    for columns in (output.features, output.deep):
        assert (columns[0] - columns[1]).norm() > 0.01 * columns[0].norm()


@each_case
def test_gradients_reach_every_parameter_and_the_images(case: Case) -> None:
    model, batch = build(case), images(*case.sizes[1]).requires_grad_()
    model(batch).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(weight.grad.any() for name, weight in model.named_parameters() if name.endswith("weight"))
    assert batch.grad.any()


@each_case
def test_all_outputs_carry_gradients(case: Case) -> None:
    output = build(case).outputs(images(*case.sizes[1]))
    assert all(tensor.requires_grad for tensor in output)


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Afterwards all objects count again for the garbage collector."""
    yield
    gc.unfreeze()


@each_case
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.usefixtures("unfrozen")
def test_nothing_is_kept_between_calls(case: Case, training: bool) -> None:
    model, batch = build(case).train(training), images(*case.sizes[1])
    gc.freeze()  # what is there already does not count, and need not be walked through
    output = model.outputs(batch)
    references = [weakref.ref(tensor) for tensor in (batch, *output)]
    assert living_tensors() >= len(output)
    del batch, output
    gc.collect()
    assert all(reference() is None for reference in references)
    assert living_tensors() == 0


@each_case
def test_the_same_seed_gives_the_same_bits(case: Case) -> None:
    batch = images(*case.sizes[1])
    first, second, other = build(case, seed=7), build(case, seed=7), build(case, seed=8)
    assert_same_state(first, second)
    assert torch.equal(first.eval()(batch), second.eval()(batch))
    assert not torch.equal(first.head.weight, other.head.weight)


@each_case
def test_the_state_travels_as_safetensors(case: Case) -> None:
    model, twin = build(case, seed=1), build(case, seed=2)
    twin.load_state_dict(load(save(model.state_dict())))
    assert_same_state(model, twin)


@each_case
def test_a_sample_does_not_depend_on_its_batch(case: Case) -> None:
    model, batch = settled(case), images(*case.sizes[1])
    together, alone = observe(model, batch), observe(model, batch[:1])
    for whole, part in zip(together, alone, strict=True):
        # Rounding goes with the largest values that were summed, not with each result, which may be near 0.
        largest = float(whole.abs().max())
        torch.testing.assert_close(whole[:1], part, rtol=1e-4, atol=1e-5 * max(1.0, largest))


@each_case
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_either_memory_format_is_as_exact_as_float32_allows(
    case: Case, memory_format: torch.memory_format
) -> None:
    model, batch = settled(case), images(*case.sizes[1])
    exact, bound = observe(copy.deepcopy(model).double(), batch.double()), rounding_bound(model)
    for computed, expected in zip(observe(model, batch.to(memory_format=memory_format)), exact, strict=True):
        assert relative_error(computed, expected) < bound


@each_case
def test_the_rounding_bound_notices_images_in_bfloat16(case: Case) -> None:
    model, batch = settled(case), images(*case.sizes[1])
    exact = observe(copy.deepcopy(model).double(), batch.double())
    rounded = observe(model, batch.bfloat16().float())
    errors = [relative_error(*pair) for pair in zip(rounded, exact, strict=True)]
    assert max(errors) > rounding_bound(model)


def relative_error(computed: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error over the largest value: rounding goes with the sums, not with each result."""
    return float((computed.double() - expected).abs().max() / expected.abs().max())


def rounding_bound(model: Network) -> float:
    """Return 4 u sqrt(K) for K roundings: float32 rounds by at most u = 2^-24, independent errors add as squares.

    K counts the products that are summed on the way of one value through all layers.
    """
    layers = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)
    products = 0
    for layer in filter(lambda layer: isinstance(layer, layers), model.modules()):
        outputs = layer.out_features if isinstance(layer, torch.nn.Linear) else layer.out_channels
        products += layer.weight.numel() // outputs
    return 4 * 2**-24 * products**0.5


@each_case
def test_number_of_parameters(case: Case) -> None:
    assert sum(parameter.numel() for parameter in build(case).parameters()) == case.parameters


def build(case: Case, *, channels: int = 3, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    height, width = case.sizes[0]
    return build_model(case.name, task=case.task, classes=CLASSES, channels=channels, height=height, width=width)


def settled(case: Case) -> Network:
    """In evaluation mode, with the statistics of a batch: those at the start let the signal die out."""
    model = build(case).eval()
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train().momentum = 1.0
    if norms:
        observe(model, images(64, 64, number=16))
    return model.eval()


def images(height: int, width: int, *, channels: int = 3, number: int = 2) -> torch.Tensor:
    return torch.rand(number, channels, height, width, generator=torch.Generator().manual_seed(5))


def observe(model: Network, batch: torch.Tensor) -> Output:
    with torch.no_grad():
        return model.outputs(batch)


def assert_same_state(first: Network, second: Network) -> None:
    one, other = first.state_dict(), second.state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def living_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
