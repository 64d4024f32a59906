"""Bytes of tensors, against the library of the format."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from feal.tensors import TYPES, encode_tensors, read_metadata, tensor_bytes

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
