"""Pictures of any size become images of one, and results are mapped back to the original size."""

import numpy as np
import pytest
from pydantic import ValidationError

from feal.data.resize import Fitting, resize

SHAPES = [
    Fitting(),
    Fitting(shape="letterbox"),
    Fitting(shape="centre"),
    Fitting(shape="canvas", canvas=48),
]


def _white(height: int, width: int) -> np.ndarray:
    return np.full((height, width), 9, dtype=np.uint8)


@pytest.mark.parametrize(
    ("fitting", "size", "shown"),
    [
        (Fitting(), (10, 40), (0, 20, 0, 20)),
        (Fitting(shape="letterbox"), (10, 40), (7, 12, 0, 20)),
        (Fitting(shape="letterbox"), (40, 30), (0, 20, 2, 17)),
        (Fitting(shape="letterbox"), (1, 900), (9, 10, 0, 20)),
        (Fitting(shape="centre"), (10, 40), (0, 20, 0, 20)),
        (Fitting(shape="canvas", canvas=40), (20, 30), (5, 15, 2, 17)),
        (Fitting(shape="canvas", canvas=40), (40, 40), (0, 20, 0, 20)),
        (Fitting(shape="canvas", canvas=40), (40, 80), (5, 15, 0, 20)),
    ],
    ids=str,
)
def test_where_a_picture_lies(fitting: Fitting, size: tuple[int, int], shown: tuple[int, int, int, int]) -> None:
    top, bottom, left, right = shown
    expected = np.zeros((20, 20), dtype=np.uint8)
    expected[top:bottom, left:right] = 9
    assert np.array_equal(fitting.fit_image(_white(*size), 20, 20), expected)
    assert np.array_equal(fitting.fit_mask(_white(*size), 20, 20), expected)
    assert fitting.window(*size, (20, 20)) == (slice(top, bottom), slice(left, right))


def test_the_middle_is_cut_out() -> None:
    columns = np.tile(np.arange(41, dtype=np.uint8), (20, 1))
    assert Fitting(shape="centre").fit_image(columns, 20, 20)[0].tolist() == list(range(10, 30))


@pytest.mark.parametrize("fitting", SHAPES, ids=str)
@pytest.mark.parametrize("size", [(40, 40), (20, 37), (48, 13), (2, 2), (1, 30)])
def test_a_mask_comes_back_in_its_own_size_and_place(fitting: Fitting, size: tuple[int, int]) -> None:
    rows, columns = np.indices(size)
    truth = (1 + (rows >= size[0] / 2) + 2 * (columns >= size[1] / 2)).astype(np.uint8)
    back = fitting.restore(fitting.fit_mask(truth, 96, 96), *size, nearest=True)
    assert back.shape == size
    seen = back > 0
    assert np.array_equal(back[seen], truth[seen])
    height, width = size
    expected = min(size) / max(size) if fitting.shape == "centre" else 1
    assert seen.mean() == pytest.approx(expected, abs=2 / min(height, width) if expected < 1 else 0)


@pytest.mark.parametrize("side", [8, 33, 64, 128, 223, 224, 225, 400])
def test_a_margin_is_added_and_removed(side: int) -> None:
    fitting = Fitting(shape="centre", margin=0.08)
    whole = fitting.add_margin(side)
    assert whole - side == 2 * -(-8 * side // 100)
    assert fitting.remove_margin(whole) == side
    if side % 2 == 0:
        assert whole == 2 * -(-116 * side // 200)  # 1.16 of the side, rounded up to an even number


def test_a_margin_shows_the_original_and_its_reflection() -> None:
    columns = np.tile(np.arange(40, dtype=np.uint8), (20, 1))
    columns[1, :] += 100
    fitting = Fitting(shape="centre", margin=0.1)
    image = fitting.fit_image(columns, 24, 24)
    assert np.array_equal(image[2:22, 2:22], Fitting(shape="centre").fit_image(columns, 20, 20))
    assert image[5].tolist() == list(range(8, 32))
    assert np.array_equal(image[1], image[3])
    assert image[1, 0] == 108
    assert np.array_equal(image[0], image[4])
    assert fitting.window(20, 40, (24, 24)) == (slice(2, 22), slice(0, 24))
    back = fitting.restore(image, 20, 40, nearest=False, unseen=0)
    assert np.array_equal(back[:, 8:32], columns[:, 8:32])
    assert not back[:, :8].any()


def test_what_was_cropped_is_marked_as_unseen() -> None:
    back = Fitting(shape="centre").restore(np.full((4, 4), 0.25, np.float32), 4, 12, nearest=False, unseen=1)
    assert back[0].tolist() == [1] * 4 + [0.25] * 4 + [1] * 4


def test_without_a_rim_to_take_off_values_come_back_as_they_are() -> None:
    values = np.random.default_rng(0).random((9, 9)).astype(np.float32)
    for fitting in SHAPES[:3]:
        assert np.array_equal(fitting.restore(values, 9, 9, nearest=False), values)


@pytest.mark.parametrize(
    "content",
    [
        {"shape": "round"},
        {"shape": "canvas"},
        {"canvas": 4},
        {"clip": 0},
        {"clip": 1.0},
        {"crop": 3},
        {"margin": 0.1},
    ],
)
def test_an_impossible_fitting_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Fitting.model_validate(content)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("size", [(17, 40), (300, 200), (64, 7)])
def test_colours_are_resized_as_each_channel_is(nearest: bool, size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 90, 3), dtype=np.uint8)
    channels = [resize(image[..., channel], *size, nearest=nearest) for channel in range(3)]
    assert np.array_equal(resize(image, *size, nearest=nearest), np.stack(channels, axis=2))
