"""Dirichlet densities on the triangle of three classes' probabilities."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

Floats = NDArray[np.float64]

HEIGHT = math.sqrt(3) / 2
"""Of the triangle whose sides are 1."""
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])
"""Where each class has all the probability: left, right, top."""


def log_density(alpha: ArrayLike, points: ArrayLike) -> Floats:
    """The logarithm of the Dirichlet density, over the first C - 1 probabilities.

    lnGamma(S) - sum_c lnGamma(alpha_c) + sum_c (alpha_c - 1) ln p_c, S = sum_c alpha_c; it does not overflow
    however large the concentration is. A uniform Dirichlet of three classes has ln 2 everywhere.

    Shapes: alpha [C], points [..., C] that sum to 1; the result is [...].
    Errors: ValueError for a concentration that is not above 0.

    >>> float(np.exp(log_density([1, 1, 1], [0.2, 0.3, 0.5])).round(12))
    2.0
    """
    concentration = np.asarray(alpha, dtype=np.float64)
    if not bool((concentration > 0).all()):
        raise ValueError(f"a concentration is above 0, not {concentration.min()}")
    normaliser = gammaln(concentration.sum()) - gammaln(concentration).sum()
    density: Floats = normaliser + xlogy(concentration - 1, np.asarray(points, dtype=np.float64)).sum(-1)
    return density


def among(alpha: NDArray[np.floating], classes: tuple[int, int, int]) -> Floats:
    """Concentrations of three classes' probabilities over their sum, whatever the other classes have.

    If p has the Dirichlet distribution alpha, then (p_i, p_j, p_k) / (p_i + p_j + p_k) has the Dirichlet
    distribution (alpha_i, alpha_j, alpha_k), and is independent of p_i + p_j + p_k: nothing needs to be
    integrated out.

    Shapes: alpha [n, C]; the result is [n, 3].
    """
    return alpha[:, list(classes)].astype(np.float64)


def positions(points: ArrayLike) -> Floats:
    """Where probabilities [..., 3] lie in the drawn triangle, [..., 2].

    >>> positions([0.0, 0.0, 1.0]).round(3).tolist()
    [0.5, 0.866]
    """
    places: Floats = np.asarray(points, dtype=np.float64) @ CORNERS
    return places


def raster(steps: int) -> tuple[Floats, Floats, Floats]:
    """Centres of the cells of a picture of the triangle: x [w], y [h], and probabilities [h, w, 3].

    `steps` cells are as wide as the triangle. Cells outside and on the border get the probabilities of the
    nearest point a quarter of a cell inside, so that a picture can be smoothed before it is cut out.
    """
    x = (np.arange(steps) + 0.5) / steps
    rows = math.ceil(steps * HEIGHT)
    y = (np.arange(rows) + 0.5) / rows * HEIGHT
    top = np.repeat((y / HEIGHT)[:, None], steps, axis=1)
    right = x[None, :] - top / 2
    inside = np.stack([1 - right - top, right, top], axis=-1).clip(min=0.25 / steps)
    return x, y, inside / inside.sum(-1, keepdims=True)
