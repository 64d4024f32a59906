"""How a picture of any size becomes an image of a data set's size, and how what is said of it is brought back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from feal.settings import Positive

Shape = Literal["resize", "letterbox", "centre", "canvas"]
Window = tuple[slice, slice]
"""Rows and columns of an image."""

_POWER = 6
"""Of the mean behind colour constancy, as FLamby takes it."""


class Fitting(BaseModel):
    """How pictures were fitted; part of a prepared set's manifest, and of a model that was trained on the set.

    >>> Fitting(shape="letterbox").image(np.full((2, 4), 7, dtype=np.uint8), 4, 4)[:, 0].tolist()
    [0, 7, 7, 0]
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    shape: Shape = "resize"
    """resize: stretched to the size. letterbox: the long side fits, on black. centre: the short side fits, what
    sticks out is cut off. canvas: as large as it is, on black; one larger than the canvas is shrunk to it."""
    canvas: Positive | None = None
    """Pixels of a picture's side that fill the set's, for the shape `canvas`."""
    clip: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of a picture's pixels, from the darkest on, that is stretched over 16 bits; see `clipped`."""
    colour: Literal["constant"] | None = None
    """Colours as under white light, once the short side has the set's size; see `constant_colour`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.shape == "canvas") != (self.canvas is not None):
            raise ValueError("a canvas has a side, and no other shape has one")
        return self

    @model_serializer(mode="wrap")
    def _told(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is not done is not mentioned."""
        return {name: value for name, value in dumped(self).items() if value is not None}

    def __str__(self) -> str:
        told = self.model_dump(exclude={"shape"})
        return ", ".join([self.shape, *(f"{name} {value}" for name, value in told.items())])

    def image(self, picture: NDArray[Any], height: int, width: int) -> NDArray[Any]:
        """A picture [H, W] or [H, W, C] as an image of that size, of the same type (uint16 if it is clipped)."""
        values = picture if self.clip is None else clipped(picture, self.clip)
        if self.colour == "constant" and values.ndim == 3:
            values = constant_colour(_short_side_at(values, min(height, width)))
        return self._placed(values, height, width, nearest=False)

    def mask(self, classes: NDArray[Any], height: int, width: int) -> NDArray[Any]:
        """The classes [H, W] of a picture's pixels as those of the image's."""
        return self._placed(classes, height, width, nearest=True)

    def back(
        self, values: NDArray[Any], height: int, width: int, *, nearest: bool, unseen: float = 0
    ) -> NDArray[Any]:
        """Values [h, w] of an image's pixels in its picture's size [H, W]; `unseen` where that was cut off."""
        place = self._place((height, width), values.shape)
        whole = np.full((place.height, place.width), unseen, dtype=values.dtype)
        whole[place.shown(values.shape)] = values[place.on(values.shape)]
        return resized(whole, height, width, nearest=nearest)

    def window(self, height: int, width: int, onto: tuple[int, int]) -> Window:
        """The rows and columns of an image of the size `onto` that show its picture of size [H, W]."""
        return self._place((height, width), onto).on(onto)

    def _placed(self, array: NDArray[Any], height: int, width: int, *, nearest: bool) -> NDArray[Any]:
        place = self._place(array.shape[:2], (height, width))
        small = resized(array, place.height, place.width, nearest=nearest)
        if small.shape[:2] == (height, width):
            return small
        image = np.zeros((height, width, *array.shape[2:]), dtype=array.dtype)
        image[place.on((height, width))] = small[place.shown((height, width))]
        return image

    def _place(self, size: tuple[int, ...], onto: tuple[int, ...]) -> _Place:
        (high, wide), (height, width) = size, onto
        if self.shape == "resize":
            return _Place(0, 0, height, width)
        fits = [height / high, width / wide]
        scale = max(fits) if self.shape == "centre" else min(fits)
        if self.canvas is not None:
            scale = min(scale, min(height, width) / self.canvas)
        high, wide = (max(1, round(side * scale)) for side in (high, wide))
        if self.shape == "centre":
            high, wide = max(high, height), max(wide, width)
        return _Place(_middle(height, high), _middle(width, wide), high, wide)


@dataclass(frozen=True)
class _Place:
    """Where a picture lies on an image, in the image's pixels; what is beyond the edges is cut off."""

    top: int
    left: int
    height: int
    width: int

    def on(self, image: tuple[int, ...]) -> Window:
        """The part of the image, [h, w], that shows the picture."""
        return _seen(self.top, self.height, image[0]), _seen(self.left, self.width, image[1])

    def shown(self, image: tuple[int, ...]) -> Window:
        """The part of the picture that the image, [h, w], shows."""
        rows, columns = self.on(image)
        return _moved(rows, -self.top), _moved(columns, -self.left)


def resized(array: NDArray[Any], height: int, width: int, *, nearest: bool) -> NDArray[Any]:
    """An image [H, W] or [H, W, C] at another size, its type kept: bilinear and antialiased, or nearest for masks.

    >>> resized(np.array([[0, 100]], dtype=np.uint8), 1, 4, nearest=True)
    array([[  0,   0, 100, 100]], dtype=uint8)
    """
    if array.shape[:2] == (height, width):
        return array
    if array.ndim == 3:
        planes = [resized(array[..., c], height, width, nearest=nearest) for c in range(array.shape[2])]
        return np.stack(planes, axis=2)
    how = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
    kept = array if array.dtype in (np.uint8, np.float32) else array.astype(np.float32)
    small = np.asarray(Image.fromarray(np.ascontiguousarray(kept)).resize((width, height), how))
    return (small if array.dtype.kind == "f" else small.round()).astype(array.dtype)


def clipped(image: NDArray[Any], share: float) -> NDArray[np.uint16]:
    """A slice [H, W] from its smallest value to its quantile `share`, stretched over 16 bits; above is white.

    The quantile is the value at place floor(share n) of the n sorted pixels, as the paper's authors take it.

    >>> clipped(np.array([[0.0, 5.0, 10.0]]), 0.99)
    array([[    0, 32768, 65535]], dtype=uint16)
    """
    values = image.astype(np.float64)
    place = int(values.size * share)
    low, high = values.min(), np.partition(values, place, axis=None)[place]
    if high <= low:
        return np.zeros(image.shape, dtype=np.uint16)
    stretched: NDArray[np.float64] = (values.clip(low, high) - low) / (high - low) * 65535
    return stretched.round().astype(np.uint16)


def constant_colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shades of grey: an image [H, W, 3] as under white light.

    Each channel c is multiplied by |e| / (sqrt(3) e_c), where e_c = (mean of x_c^6)^(1/6) and |e| is the length of
    e; what rises above 255 becomes 255.
    """
    values = image.astype(np.float64)
    light = (values**_POWER).mean(axis=(0, 1)) ** (1 / _POWER)
    # A channel that is black throughout stays so.
    gain = np.linalg.norm(light) / (np.sqrt(3) * np.where(light > 0, light, 1))
    white: NDArray[np.float64] = np.minimum(values * gain, 255)
    return white.astype(np.uint8)


def _short_side_at(image: NDArray[Any], size: int) -> NDArray[Any]:
    """With the fraction of a pixel cut off the long side, as FLamby does."""
    height, width = image.shape[:2]
    scale = size / min(height, width)
    return resized(image, max(size, int(height * scale)), max(size, int(width * scale)), nearest=False)


def _middle(image: int, picture: int) -> int:
    """Where a picture begins that lies in the middle; an odd pixel is left or cut off after it."""
    return (image - picture) // 2 if picture <= image else -((picture - image) // 2)


def _seen(start: int, length: int, image: int) -> slice:
    return slice(max(0, start), min(image, start + length))


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)
