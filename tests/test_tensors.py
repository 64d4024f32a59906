"""Bytes of tensors against the library of the format; devices and threads."""

from unittest.mock import MagicMock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from feal.tensors import (
    TYPES,
    all_finite,
    encode_tensors,
    mixed_precision,
    read_metadata,
    resolve_batch_size,
    resolve_device,
    tensor_bytes,
    to_device,
    use_threads,
)

SHAPES = st.lists(st.integers(0, 3), max_size=3)


@given(st.dictionaries(st.text(max_size=4), st.tuples(st.sampled_from(list(TYPES)), SHAPES), max_size=6))
def test_the_library_reads_every_type_and_shape(wanted: dict[str, tuple[torch.dtype, list[int]]]) -> None:
    tensors = {name: (torch.rand(shape) * 5).to(dtype) for name, (dtype, shape) in wanted.items()}
    back = load(b"".join(encode_tensors(tensors)))
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor)


def test_metadata_travel_with_the_tensors(tmp_path) -> None:
    data = b"".join(encode_tensors({"w": torch.ones(3)}, metadata={"one": "1", "zwei": "ü"}))
    (tmp_path / "file").write_bytes(data)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == read_metadata(data) == {"one": "1", "zwei": "ü"}


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 30, (2).to_bytes(8, "little") + b"[]"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SafetensorError):
        read_metadata(data)


def test_the_same_tensors_give_the_same_bytes_in_any_order() -> None:
    one, two = torch.arange(3), torch.rand(2, 2).half()
    assert b"".join(encode_tensors({"a": one, "b": two})) == b"".join(encode_tensors({"b": two, "a": one}))


def test_a_view_is_written_as_it_looks() -> None:
    tensor = torch.arange(6).reshape(2, 3).T
    assert torch.equal(load(b"".join(encode_tensors({"t": tensor})))["t"], tensor)


def test_contiguous_memory_is_not_copied() -> None:
    tensor = torch.zeros(4)
    tensor_bytes(tensor)[:] = b"\xff" * 16
    assert tensor.isnan().all()


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, name in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto").type == name
        assert resolve_device("cpu").type == "cpu"


def test_images_keep_their_values_and_come_channels_last() -> None:
    images = torch.rand(2, 3, 8, 4)
    placed = to_device(images, torch.device("cpu"))
    assert torch.equal(placed, images)
    assert placed.is_contiguous(memory_format=torch.channels_last)


def test_threads_are_given_back_also_after_a_failure() -> None:
    before = torch.get_num_threads()
    with use_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), use_threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_what_is_no_image_keeps_its_form() -> None:
    features = torch.rand(5, 7)
    assert torch.equal(to_device(features, torch.device("cpu")), features)


def test_a_copy_to_a_gpu_is_pinned_and_not_waited_for() -> None:
    images = MagicMock(device=torch.device("cpu"), **{"dim.return_value": 4})
    copied = to_device(images, torch.device("cuda"))
    pinned = images.pin_memory.return_value
    assert copied is pinned.to.return_value
    pinned.to.assert_called_once_with(torch.device("cuda"), memory_format=torch.channels_last, non_blocking=True)
    there = MagicMock(device=torch.device("cuda", 0), **{"dim.return_value": 4})
    to_device(there, torch.device("cuda"))
    there.pin_memory.assert_not_called()


def test_a_cpu_computes_in_full_precision() -> None:
    layer, given = torch.nn.Linear(3, 2), torch.rand(4, 3)
    with mixed_precision(torch.device("cpu")):
        assert torch.equal(layer(given), torch.nn.functional.linear(given, layer.weight, layer.bias))
        assert layer(given).dtype == torch.float32


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_that_computes_with_bfloat16_does(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: able)
    monkeypatch.setattr(torch, "autocast", lambda device, **options: asked.update(device=device, **options))
    mixed_precision(torch.device("cuda"))
    assert asked == {"device": "cuda", "dtype": torch.bfloat16, "enabled": able}


def test_a_given_batch_size_is_kept_whatever_the_images() -> None:
    assert resolve_batch_size(7, height=1024, width=1024) == 7


@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_values_are_finite_also_where_their_squares_overflow(odd: float, dtype: torch.dtype) -> None:
    largest = torch.full((9,), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite([largest, -largest, torch.ones(3), torch.tensor(7)])
    assert not all_finite([largest, torch.ones(3), torch.tensor([0, odd], dtype=dtype)])
    assert not all_finite([torch.tensor([odd, -odd], dtype=dtype)])
