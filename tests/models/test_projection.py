"""The projection of features: sums over sites give the principal components of all samples."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from feal.errors import FealError
from feal.models.projection import FeatureSums, fit_projection, project, sum_features


def draw(count: int = 80, width: int = 6, *, seed: int = 0) -> Tensor:
    """Correlated features of different means and deviations."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(count, width, generator=generator) @ torch.randn(width, width, generator=generator)
    return mixed * torch.logspace(-2, 2, width) + torch.arange(width)


def add(parts: list[FeatureSums]) -> FeatureSums:
    return sum(parts[1:], parts[0])


@pytest.mark.parametrize("sites", [2, 4, 12])
def test_sums_of_parts_add_up_to_those_of_all(sites: int) -> None:
    features = draw()
    total, whole = add([sum_features(features[site::sites]) for site in range(sites)]), sum_features(features)
    assert total.count == whole.count == 80
    torch.testing.assert_close(total.total, whole.total)
    torch.testing.assert_close(total.products, whole.products)
    for name, tensor in fit_projection(total, 3).items():
        torch.testing.assert_close(tensor, fit_projection(whole, 3)[name])


def test_sums_are_those_of_the_definition_and_travel_as_tensors() -> None:
    features = draw(9, 4)
    sums = FeatureSums.from_tensors(sum_features(features).tensors())
    numbers = features.double()
    assert sums.count == 9
    torch.testing.assert_close(sums.total, numbers.sum(0))
    products = numbers.T @ numbers
    torch.testing.assert_close(sums.products, products[tuple(torch.triu_indices(4, 4))])
    assert sums.total.dtype == sums.products.dtype == torch.float64


@pytest.mark.parametrize("components", [2, 4, 6])
def test_it_is_the_pca_of_standardised_features(components: int) -> None:
    features = draw()
    found = project(features, fit_projection(sum_features(features), components)).double().numpy()
    numbers = features.double().numpy()
    expected = PCA(components).fit_transform((numbers - numbers.mean(0)) / numbers.std(0))
    expected *= np.sign((expected * found).sum(0))
    expected *= np.sqrt(components / np.square(expected).sum(1).mean())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("components", [2, 5, 6, 9])
def test_the_mean_square_is_the_number_of_components(components: int) -> None:
    features = draw()
    projected = project(features, fit_projection(sum_features(features), components))
    assert projected.shape == (80, components)
    assert projected.dtype == torch.float32
    assert float(projected.square().sum(1).mean()) == pytest.approx(components, rel=1e-4)
    torch.testing.assert_close(projected.mean(0), torch.zeros(components), rtol=0, atol=1e-4)


def test_the_sign_is_that_of_the_largest_entry() -> None:
    components = fit_projection(sum_features(draw()), 4)["components"]
    assert bool((components[components.abs().argmax(0), torch.arange(4)] > 0).all())


@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_a_constant_feature_counts_nothing(value: float) -> None:
    features = draw()
    with_constant = torch.cat([features[:, :2], torch.full((80, 1), value), features[:, 2:]], dim=1)
    projection = fit_projection(sum_features(with_constant), 4)
    assert float(projection["scale"][2]) == 0
    other = with_constant.clone()
    other[:, 2] = 77.0
    assert torch.equal(project(other, projection), project(with_constant, projection))
    torch.testing.assert_close(
        project(with_constant, projection), project(features, fit_projection(sum_features(features), 4))
    )


def test_fewer_components_than_asked_for_leave_zeros() -> None:
    features = draw(width=3)
    projection = fit_projection(sum_features(features), 5)
    assert projection["components"].shape == (3, 5)
    projected = project(features, projection)
    assert torch.equal(projected[:, 3:], torch.zeros(80, 2))
    assert bool((projected[:, :3].std(0) > 0).all())


def test_features_that_depend_on_others_leave_zeros() -> None:
    features = draw(width=3)
    twice = torch.cat([features, 2 * features], dim=1)
    projected = project(twice, fit_projection(sum_features(twice), 5))
    torch.testing.assert_close(projected[:, 3:], torch.zeros(80, 2))
    assert bool((projected[:, :3].std(0) > 0.01).all())


@pytest.mark.parametrize("samples", [2, 3])
def test_fewer_samples_than_features_are_enough(samples: int) -> None:
    features = draw(samples, 8)
    projected = project(features, fit_projection(sum_features(features), 6))
    assert bool(projected.isfinite().all())
    assert int((projected.abs().amax(0) > 1e-3).sum()) == samples - 1
    assert float(projected.square().sum(1).mean()) == pytest.approx(6, rel=1e-3)


@pytest.mark.parametrize("samples", [0, 1])
def test_fewer_than_two_samples_are_refused(samples: int) -> None:
    with pytest.raises(FealError, match=r"^Features cannot be standardised by fewer than two images: add some\.$"):
        fit_projection(sum_features(torch.ones(samples, 3)), 2)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e5])
def test_images_that_are_all_alike_are_refused(value: float) -> None:
    with pytest.raises(FealError, match=r"^All images have the same features: "):
        fit_projection(sum_features(torch.full((9, 3), value)), 2)


@pytest.mark.parametrize("problem", ["nan", "inf", "too small", "negative"])
def test_sums_of_no_images_are_refused(problem: str) -> None:
    sums = sum_features(draw(width=3))
    products = sums.products.clone()
    if problem == "too small":
        products[0] = 0.1 * float(sums.total[0]) ** 2 / sums.count
    else:
        products[0] = {"nan": torch.nan, "inf": torch.inf, "negative": -1.0}[problem]
    wrong = FeatureSums(count=sums.count, total=sums.total, products=products)
    with pytest.raises(
        FealError, match=r"^The sums of features are not those of any images: compute them again\.$"
    ):
        fit_projection(wrong, 2)


def test_maps_are_projected_pixel_by_pixel() -> None:
    pixels = draw(2 * 3 * 5)
    maps = pixels.reshape(2, 3, 5, 6).movedim(-1, 1)
    sums, expected = sum_features(maps), sum_features(pixels)
    assert sums.count == 30
    torch.testing.assert_close(sums.products, expected.products)
    projection = fit_projection(sums, 4)
    projected = project(maps, projection)
    assert projected.shape == (2, 4, 3, 5)
    rows = projected.movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(rows, project(pixels, projection), rtol=1e-4, atol=1e-4)
