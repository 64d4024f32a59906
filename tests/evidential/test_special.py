import mpmath as mp
import pytest
import torch

from feal.evidential.special import (
    HALF_LOG_2_PI_E,
    REMAINDER_SCALE,
    entropy_remainder,
    twice_digamma_next,
)

POINTS = torch.cat([torch.linspace(1, 12, 300), torch.logspace(1, 14, 200)]).double()


def _remainder(x: mp.mpf) -> mp.mpf:
    return (
        mp.loggamma(x) - (x - 1) * mp.digamma(x) + x - mp.digamma(x + 1) / 2 - (mp.log(2) + mp.log(mp.pi) + 1) / 2
    )


def test_digamma_is_right_to_a_billionth() -> None:
    truth = torch.tensor([float(mp.digamma(mp.mpf(x) + 1)) for x in POINTS.tolist()], dtype=torch.float64)
    assert (twice_digamma_next(POINTS) / 2 - truth).abs().max() < 6e-10


def test_remainder_is_right_to_a_billionth() -> None:
    with mp.workdps(50):
        truth = torch.tensor([float(_remainder(mp.mpf(x))) for x in POINTS.tolist()], dtype=torch.float64)
    assert (REMAINDER_SCALE * entropy_remainder(POINTS) - truth).abs().max() < 9e-10


def test_constant() -> None:
    assert pytest.approx(float((mp.log(2 * mp.pi) + 1) / 2), abs=1e-15) == HALF_LOG_2_PI_E


@pytest.mark.parametrize("function", [twice_digamma_next, entropy_remainder])
def test_float32_stays_in_float32_and_finite(function) -> None:
    x = torch.cat([POINTS, torch.tensor([1e18])]).float()
    result = function(x)
    assert result.dtype == torch.float32
    assert torch.allclose(result.double(), function(x.double()), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("function", [twice_digamma_next, entropy_remainder])
def test_the_argument_is_left_alone(function) -> None:
    x = POINTS.clone()
    function(x)
    assert torch.equal(x, POINTS)


def test_constants_made_in_inference_mode_serve_afterwards() -> None:
    with torch.inference_mode():
        twice_digamma_next(torch.ones(2, dtype=torch.float64))
    twice_digamma_next(torch.ones(2, dtype=torch.float64)).add_(1)
