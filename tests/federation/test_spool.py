"""Weights on disk until they are averaged."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.errors import FealError
from feal.federation.aggregation import fedavg
from feal.federation.spool import Spool

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(layout=st.lists(st.tuples(st.sampled_from(TYPES), SHAPES), max_size=5))
def test_what_was_kept_comes_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, layout: list[tuple[torch.dtype, list[int]]]
) -> None:
    weights = {
        f"layer.{number}": (torch.rand(shape) * 200 - 100).to(dtype)
        for number, (dtype, shape) in enumerate(layout)
    }
    kept = Spool(tmp_path_factory.mktemp("spool")).keep("alder", weights)
    assert list(kept) == list(weights)
    for name, tensor in weights.items():
        assert kept[name].dtype == tensor.dtype
        assert torch.equal(kept[name], tensor)


def test_spooled_states_average_like_those_in_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    states = [{"w": torch.rand(5, 3), "n": torch.tensor(number)} for number in range(4)]
    kept = [spool.keep(f"site-{number}", state) for number, state in enumerate(states)]
    expected = fedavg(states, [1, 2, 3, 4])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in fedavg(kept, [1, 2, 3, 4]).items())


def test_a_transposed_tensor_is_kept_by_value(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(Spool(tmp_path).keep("alder", {"w": tensor})["w"], tensor)


def test_nothing_is_left_after_clearing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    kept = spool.keep("alder", {"w": torch.ones(3)})
    spool.clear()
    spool.clear()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FealError, match="alder"):
        kept["w"]


def test_a_place_that_takes_no_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("in the way")
    with pytest.raises(FealError, match="spool"):
        Spool(tmp_path / "spool").keep("alder", {"w": torch.ones(3)})
