"""Fit images of any size to the size of a data set, and map results back to the original size."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from feal.settings import Positive

FitShape = Literal["resize", "letterbox", "centre", "canvas"]
Window = tuple[slice, slice]
"""The rows and columns of a part of an image."""

_POWER = 6
"""The exponent of the mean in colour constancy, as in FLamby."""


class Fitting(BaseModel):
    """How images are fitted to a data set's size; stored in its manifest and in models trained on it.

    Below, `original` is the image before and `image` the one after fitting.

    >>> Fitting(shape="letterbox").fit_image(np.full((2, 4), 7, dtype=np.uint8), 4, 4)[:, 0].tolist()
    [0, 7, 7, 0]
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    shape: FitShape = "resize"
    """resize: stretch to the size. letterbox: fit the long side, on black. centre: fit the short side and crop the
    rest. canvas: keep the scale, on black; an image larger than the canvas is shrunk to it."""
    canvas: Positive | None = None
    """For the shape `canvas`: the side in original pixels that fills the image."""
    clip: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The quantile of pixel values that becomes white in 16 bits; see `clip_quantile`."""
    colour: Literal["constant"] | None = None
    """Colour constancy, after the short side is resized; see `apply_colour_constancy`."""
    margin: Annotated[float, Field(gt=0, le=1)] | None = None
    """For the shape `centre`: how much of the square's side is kept beyond each of its edges, so that a rotation
    finds pixels there; where the original ends, it is reflected (`dcb|abcd|cba`)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.shape == "canvas") != (self.canvas is not None):
            raise ValueError("`canvas` is required for the shape canvas and not allowed for any other")
        if self.margin is not None and self.shape != "centre":
            raise ValueError("`margin` is for the shape centre")
        return self

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    def __str__(self) -> str:
        options = self.model_dump(exclude={"shape"})
        return ", ".join([self.shape, *(f"{name} {value}" for name, value in options.items())])

    def add_margin(self, side: int) -> int:
        """Return the side of an image whose square, without the margins, has this side.

        >>> Fitting(shape="centre", margin=0.08).add_margin(224), Fitting().add_margin(224)
        (260, 224)
        """
        return side + 2 * math.ceil((self.margin or 0) * side)

    def remove_margin(self, side: int) -> int:
        """Return the side of the square inside the margins of an image: the largest one that fits.

        >>> Fitting(shape="centre", margin=0.08).remove_margin(260)
        224
        """
        inner = side if self.margin is None else int(side / (1 + 2 * self.margin)) + 1
        while self.add_margin(inner) > side:
            inner -= 1
        return inner

    def fit_image(self, original: NDArray[Any], height: int, width: int) -> NDArray[Any]:
        """Fit an original [H, W] or [H, W, C] to a size, keeping its type (uint16 if it is clipped)."""
        values = original if self.clip is None else clip_quantile(original, self.clip)
        if self.colour == "constant" and values.ndim == 3:
            side = self.remove_margin(min(height, width))
            values = apply_colour_constancy(_resize_short_side(values, side))
        return self._fit(values, height, width, nearest=False)

    def fit_mask(self, classes: NDArray[Any], height: int, width: int) -> NDArray[Any]:
        """Fit the mask [H, W] of an original to a size."""
        return self._fit(classes, height, width, nearest=True)

    def restore(
        self, values: NDArray[Any], height: int, width: int, *, nearest: bool, unseen: float = 0
    ) -> NDArray[Any]:
        """Map values [h, w] of an image back to the original size [H, W]; `unseen` where it was cropped."""
        place = self._place((height, width), values.shape)
        whole = np.full(place.size, unseen, dtype=values.dtype)
        whole[place.shown] = values[place.on]
        return resize(whole, height, width, nearest=nearest)

    def window(self, height: int, width: int, onto: tuple[int, int]) -> Window:
        """Return the part of an image of size `onto` that shows its original of size [H, W]."""
        return self._place((height, width), onto).on

    def _fit(self, array: NDArray[Any], height: int, width: int, *, nearest: bool) -> NDArray[Any]:
        place = self._place(array.shape[:2], (height, width))
        small = resize(array, *place.size, nearest=nearest)
        if small.shape[:2] == (height, width):
            return small
        if self.margin is not None:
            gaps = [(on.start, side - on.stop) for on, side in zip(place.on, (height, width), strict=True)]
            return np.pad(small[place.shown], [*gaps, *[(0, 0)] * (array.ndim - 2)], mode="reflect")
        # Stored by channel, since that is how data sets hold images.
        planes = np.zeros((*array.shape[2:], height, width), dtype=array.dtype)
        image = planes if array.ndim == 2 else planes.transpose(1, 2, 0)
        image[place.on] = small[place.shown]
        return image

    def _place(self, original: tuple[int, ...], onto: tuple[int, ...]) -> _Place:
        (high, wide), (height, width) = original, onto
        square = self.remove_margin(height), self.remove_margin(width)
        if self.shape == "resize":
            high, wide = height, width
        else:
            fits = [square[0] / high, square[1] / wide]
            scale = max(fits) if self.shape == "centre" else min(fits)
            if self.canvas is not None:
                scale = min(scale, min(height, width) / self.canvas)
            high, wide = (max(1, round(side * scale)) for side in (high, wide))
            if self.shape == "centre":
                high, wide = max(high, square[0]), max(wide, square[1])
        # Centred; an odd pixel is left or cropped at the end.
        top, left = int((square[0] - high) / 2), int((square[1] - wide) / 2)
        top, left = top + (height - square[0]) // 2, left + (width - square[1]) // 2
        rows, columns = slice(max(0, top), min(height, top + high)), slice(max(0, left), min(width, left + wide))
        shown = (slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left))
        return _Place(size=(high, wide), on=(rows, columns), shown=shown)


class _Place(NamedTuple):
    """Where an original lies on its image."""

    size: tuple[int, int]
    """Height and width of the scaled original; parts beyond the edges of the image are cropped."""
    on: Window
    """The part of the image that shows the original."""
    shown: Window
    """The part of the scaled original that the image shows."""


def resize(array: NDArray[Any], height: int, width: int, *, nearest: bool) -> NDArray[Any]:
    """Resize [H, W] or [H, W, C] and keep its type: bilinear with antialiasing, or nearest for masks.

    >>> resize(np.array([[0, 100]], dtype=np.uint8), 1, 4, nearest=True)
    array([[  0,   0, 100, 100]], dtype=uint8)
    """
    if array.shape[:2] == (height, width):
        return array
    is_rgb = array.dtype == np.uint8 and array.shape[2:] == (3,)
    if array.ndim == 3 and not is_rgb:
        planes = [resize(array[..., c], height, width, nearest=nearest) for c in range(array.shape[2])]
        return np.stack(planes, axis=2)
    how = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
    kept = array if array.dtype in (np.uint8, np.float32) else array.astype(np.float32)
    small = np.asarray(Image.fromarray(np.ascontiguousarray(kept)).resize((width, height), how))
    return (small if array.dtype.kind == "f" or kept is array else small.round()).astype(array.dtype)


def clip_quantile(image: NDArray[Any], share: float) -> NDArray[np.uint16]:
    """Stretch a slice [H, W] from its smallest value to its quantile `share` over 16 bits; above is white.

    The quantile is the value at index floor(share n) of the n sorted pixels, as in the paper's code.

    >>> clip_quantile(np.array([[0.0, 5.0, 10.0]]), 0.99)
    array([[    0, 32768, 65535]], dtype=uint16)
    """
    values = image.astype(np.float64)
    place = int(values.size * share)
    low, high = values.min(), np.partition(values, place, axis=None)[place]
    if high <= low:
        return np.zeros(image.shape, dtype=np.uint16)
    stretched: NDArray[np.float64] = (values.clip(low, high) - low) / (high - low) * 65535
    return stretched.round().astype(np.uint16)


def apply_colour_constancy(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Correct the colours of an image [H, W, 3] to white light by the shades-of-grey method.

    Each channel c is multiplied by |e| / (sqrt(3) e_c), where e_c = (mean of x_c^6)^(1/6) and |e| is the norm of
    e; values above 255 become 255.
    """
    values = image.astype(np.float64)
    light = (values**_POWER).mean(axis=(0, 1)) ** (1 / _POWER)
    # An all-black channel stays black.
    gain = np.linalg.norm(light) / (np.sqrt(3) * np.where(light > 0, light, 1))
    white: NDArray[np.float64] = np.minimum(values * gain, 255)
    return white.astype(np.uint8)


def _resize_short_side(image: NDArray[Any], size: int) -> NDArray[Any]:
    """Resize the short side to `size`; the long side is rounded down, as in FLamby."""
    height, width = image.shape[:2]
    scale = size / min(height, width)
    return resize(image, max(size, int(height * scale)), max(size, int(width * scale)), nearest=False)
