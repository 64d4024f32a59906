"""Standardise features and reduce them by principal components, from sums that can be added over sites."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from feal.errors import FealError
from feal.tensors import Tensors

_SMALLEST = 1e-6
"""Deviation of a feature, as a share of the largest, below which it counts as constant."""


@dataclass(frozen=True, kw_only=True)
class FeatureSums:
    """Sums over n feature vectors x of F numbers: n, sum x and the upper triangle of sum x x'."""

    count: float
    total: Tensor
    """sum x, float64 [F]."""
    products: Tensor
    """The upper triangle of sum x x', row by row, float64 [F (F + 1) / 2]."""

    def __add__(self, other: FeatureSums) -> FeatureSums:
        return FeatureSums(
            count=self.count + other.count,
            total=self.total + other.total,
            products=self.products + other.products,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums as tensors by name, as they travel."""
        count = torch.tensor([self.count], dtype=torch.float64)
        return {"count": count, "total": self.total, "products": self.products}

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> FeatureSums:
        """Return the sums that `tensors` gave."""
        return cls(count=float(tensors["count"][0]), total=tensors["total"], products=tensors["products"])


def sum_features(features: Tensor) -> FeatureSums:
    """Return the sums of features [n, F], or of the pixels of maps [n, F, h, w], in float64.

    >>> sum_features(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).products
    tensor([10., 14., 20.], dtype=torch.float64)
    """
    flat = features if features.ndim == 2 else features.movedim(1, -1).flatten(0, -2)
    numbers = flat.double()
    products = numbers.T @ numbers
    rows, columns = torch.triu_indices(*products.shape)
    return FeatureSums(count=float(len(flat)), total=numbers.sum(0), products=products[rows, columns])


def fit_projection(sums: FeatureSums, components: int) -> dict[str, Tensor]:
    """Return the projection of features to D principal components of the standardised ones.

    x = V' ((f - mean) / deviation) / s, with V the eigenvectors of the D largest eigenvalues of the correlation
    matrix, and s such that the mean of |x|^2 is D. A constant feature counts nothing; where there are fewer than D
    components, the last numbers are 0.

    Args:
        sums: over all sites.
        components: D.

    Returns:
        `mean` and `scale` (1 / deviation), float32 [F], and `components` V / s, float32 [F, D].

    Raises:
        FealError: fewer than two vectors, or sums that no features give.

    >>> features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.0])
    >>> projected = project(features, fit_projection(sum_features(features), 2))
    >>> bool((projected.square().sum(1).mean() - 2).abs() < 1e-4)
    True
    """
    if not sums.count >= 2:
        raise FealError("Features cannot be standardised by fewer than two images: add some.")
    mean = sums.total / sums.count
    width = len(mean)
    covariance = torch.zeros(width, width, dtype=torch.float64)
    rows, columns = torch.triu_indices(width, width)
    covariance[rows, columns] = sums.products / sums.count
    covariance = covariance + covariance.T - torch.diag(covariance.diagonal())
    covariance -= mean[:, None] * mean
    variance = covariance.diagonal()
    noise = sums.products[_diagonal(width)] / sums.count  # mean squares: what the variances are differences of
    if not bool(covariance.isfinite().all()) or bool((variance < -1e-6 * noise).any()):
        raise FealError("The sums of features are not those of any images: compute them again.")
    deviation = variance.clamp_min(0).sqrt()
    varies = deviation > torch.maximum(_SMALLEST * deviation.max(), 1e-7 * noise.sqrt())
    if not bool(varies.any()):
        raise FealError("All images have the same features: check the images, or give another encoder.")
    scale = torch.where(varies, deviation, torch.inf).reciprocal()
    correlation = covariance * scale[:, None] * scale
    kept = min(components, width)
    values, vectors = _largest_components(correlation, kept)
    # The sign of an eigenvector is arbitrary: the largest entry is made positive.
    largest = vectors.abs().argmax(0)
    vectors = vectors * vectors[largest, torch.arange(kept)].sign()
    is_real = values > 1e-9 * values[0]
    vectors = vectors * is_real / (values[is_real].sum() / components).sqrt()
    padded = torch.zeros(width, components, dtype=torch.float64)
    padded[:, :kept] = vectors
    return {"mean": mean.float(), "scale": scale.float(), "components": padded.float()}


def project(features: Tensor, projection: Tensors) -> Tensor:
    """Project features [n, F], or the pixels of maps [n, F, h, w], to D numbers each, float32."""
    shape = (-1, *[1] * (features.ndim - 2))
    standard = (features - projection["mean"].reshape(shape)) * projection["scale"].reshape(shape)
    if features.ndim == 2:
        return standard @ projection["components"]
    return torch.einsum("nfhw,fd->ndhw", standard, projection["components"])


def _largest_components(correlation: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues, largest first, and their eigenvectors [F, count]."""
    # It takes a fifth of a second to import; torch has no function for some of the eigenvectors.
    from scipy.linalg import eigh

    width = len(correlation)
    values, vectors = eigh(
        correlation.numpy(), subset_by_index=(width - count, width - 1), driver="evr", check_finite=False
    )
    return torch.from_numpy(values[::-1].copy()), torch.from_numpy(vectors[:, ::-1].copy())


def _diagonal(width: int) -> Tensor:
    """Return the positions of a matrix's diagonal in its packed upper triangle."""
    rows = torch.arange(width)
    return rows * width - rows * (rows - 1) // 2
