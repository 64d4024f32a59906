import pytest
import torch

from feal.selection.products import TINY, Products, direction, mean_row


@pytest.mark.parametrize("width", [1, 7, 1280, 20_000])
@pytest.mark.parametrize("kind", ["constant", "positive", "signed", "huge", "minute", "zero"])
def test_products_keep_within_their_error(kind: str, width: int) -> None:
    noise = torch.randn((30, width), generator=torch.Generator().manual_seed(0))
    features = {
        "constant": (0.1 + 1e-3 * noise[:, :1]).expand(30, width).contiguous(),
        "positive": noise.abs() + 5,
        "signed": noise,
        "huge": 1e30 * noise,
        "minute": 1e-35 * noise,
        "zero": 0 * noise,
    }[kind]
    others = features.flip(0) + 1
    populations, means = (features, others), [mean_row(features), mean_row(others)]
    products = Products(features, means)
    torch.testing.assert_close(products.norms, features.double().square().sum(1).sqrt())
    for row in range(30):
        vectors = [direction(population[row], mean) for population, mean in zip(populations, means, strict=True)]
        for population, vector, column in zip(populations, vectors, products.with_each(vectors), strict=True):
            exact = (features.double() * population[row].double()).sum(1)
            assert ((column - exact).abs() <= products.norms.clamp_min(TINY) * vector.error).all()


def test_what_samples_have_in_common_is_not_rounded() -> None:
    features = 1e3 + 1e-2 * torch.randn((50, 64), generator=torch.Generator().manual_seed(0))
    products = Products(features, [mean_row(features)])
    (column,) = products.with_each([direction(features[3], mean_row(features))])
    exact = (features.double() * features[3].double()).sum(1)
    assert (column - exact).abs().max() < 1e-9 * exact.max()


def test_a_row_that_is_not_finite_is_named() -> None:
    features = torch.zeros(9, 2)
    features[4, 1] = torch.inf
    with pytest.raises(ValueError, match="sample 4 contain NaN or infinity"):
        Products(features, [mean_row(features)])
