import pytest
import torch

from feal.losses import class_index, full_precision


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 1, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_both_forms_of_a_map(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    index = class_index(torch.zeros(2, 3, 4, 5), torch.full(shape, 2, dtype=dtype))
    assert index.shape == (2, 1, 4, 5)
    assert index.dtype == torch.int64
    assert bool((index == 2).all())


def test_samples() -> None:
    assert class_index(torch.zeros(2, 3), torch.tensor([1, 2])).tolist() == [[1], [2]]
    assert class_index(torch.zeros(2, 3), torch.tensor([[1], [2]])).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(3), torch.tensor([0]), r"\[N, C, ...\] .* got \[3\]"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one sample"),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), "integer classes, got torch.float32"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), r"\[3\] does not fit logits of \[2, 3\]"),
        (torch.zeros(2, 3), torch.tensor(0), r"\[\] does not fit"),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 2, 4, 4, dtype=torch.long), "does not fit"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "class 3, but there are only classes 0 to 2"),
        (torch.zeros(2, 3), torch.tensor([-1, 2]), "class -1, but"),
    ],
)
def test_what_does_not_fit_is_said(logits: torch.Tensor, target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_index(logits, target)


def test_precision() -> None:
    for dtype in (torch.float32, torch.float64):
        assert full_precision(torch.zeros(1, dtype=dtype)).dtype == dtype
    assert full_precision(torch.zeros(1, dtype=torch.float16)).dtype == torch.float32
