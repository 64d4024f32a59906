import pytest
import torch
from torch import Tensor

from feal.evidential import blockwise
from feal.evidential.blockwise import reduce_classes


def _spread(block: Tensor, *results: Tensor) -> None:
    """Largest class less the mean, and the sum: the block's last row is no class."""
    classes = block[:-1]
    results[0].copy_(classes.amax(0) - block[-1] / len(classes))
    results[1].copy_(block[-1])


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 3), 1), ((3, 5), 0), ((4, 3, 6, 7), 1), ((4, 6, 3, 7), -2), ((2, 5, 3), 2), ((3,), 0)]
)
def test_any_block_size_covers_every_position(shape, dim, size, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "_BLOCK", size)
    alpha = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    spread, total = reduce_classes(_spread, alpha, dim, torch.float64, results=2)
    exact = alpha.double()
    assert total.dtype == torch.float64
    assert torch.allclose(total, exact.sum(dim), rtol=1e-14)
    assert torch.allclose(spread, exact.amax(dim) - exact.mean(dim), rtol=1e-14, atol=1e-14)


def test_memory_layout_does_not_matter() -> None:
    alpha = torch.rand(2, 3, 8, 8)
    last = alpha.to(memory_format=torch.channels_last)
    assert torch.equal(
        torch.stack(reduce_classes(_spread, alpha, 1, torch.float64, results=2)),
        torch.stack(reduce_classes(_spread, last, 1, torch.float64, results=2)),
    )


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0)])
def test_nothing_in_nothing_out(shape) -> None:
    (result, _) = reduce_classes(_spread, torch.ones(shape), 1, torch.float64, results=2)
    assert result.shape == (shape[0], *shape[2:])


def test_a_missing_dimension_is_an_error() -> None:
    with pytest.raises(IndexError):
        reduce_classes(_spread, torch.ones(2, 3), 2, torch.float64, results=2)
