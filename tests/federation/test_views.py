import pytest
import torch

from feal.federation.views import MOST, viewed

IMAGES = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))


def test_the_first_view_is_the_image_itself() -> None:
    assert viewed(IMAGES, 0) is IMAGES


@pytest.mark.parametrize(("view", "axes"), [(1, [3]), (2, [2]), (3, [2, 3])])
def test_three_are_flips(view: int, axes: list[int]) -> None:
    assert torch.equal(viewed(IMAGES, view), IMAGES.flip(axes))
    assert torch.equal(viewed(IMAGES, view + 4), viewed(viewed(IMAGES, 4), view))


def test_four_are_of_the_enlarged_middle() -> None:
    ramp = torch.arange(32.0).reshape(1, 1, 1, 32).expand(1, 1, 32, 32)
    columns = viewed(ramp, 4)[0, 0, 16]
    steps = columns.diff()[1:-1]
    torch.testing.assert_close(steps, torch.full_like(steps, 7 / 8))
    assert columns[0] == pytest.approx(2, abs=0.1)
    assert columns[-1] == pytest.approx(29, abs=0.1)


def test_all_differ_and_keep_shape_and_memory_format() -> None:
    last = IMAGES.to(memory_format=torch.channels_last)
    views = [viewed(last, view) for view in range(MOST)]
    assert all(view.shape == IMAGES.shape for view in views)
    assert all(view.is_contiguous(memory_format=torch.channels_last) for view in views)
    assert all(not torch.equal(one, other) for i, one in enumerate(views) for other in views[:i])


@pytest.mark.parametrize("view", [-1, MOST])
def test_there_are_no_others(view: int) -> None:
    with pytest.raises(ValueError, match="numbered from 0 to 7"):
        viewed(IMAGES, view)
