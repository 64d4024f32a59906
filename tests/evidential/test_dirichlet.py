import math

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from scipy.stats import dirichlet as scipy_dirichlet
from torch import Tensor

from feal.evidential import dirichlet
from feal.evidential.dirichlet import (
    aleatoric,
    concentration,
    epistemic,
    expected_probability,
    kl_to_uniform,
    uncertainties,
)
from tests.evidential import oracle

SCORES = [aleatoric, epistemic, kl_to_uniform]
TOLERANCE = 1e-6  # promised; the fits hold 2e-8
evidence = st.one_of(st.just(0.0), st.floats(1e-6, 1e7), st.floats(-6, 7).map(lambda power: 10.0**power))
samples = st.lists(evidence, min_size=2, max_size=10)


def _fixture_alpha(case: dict) -> Tensor:
    """The fixture's evidence was rounded to float32, as a logit is, and 1 added in high precision."""
    classes = torch.arange(case["C"], dtype=torch.float64)
    share = {"one": classes == 0, "all": classes >= 0, "mixed": classes / (case["C"] - 1)}[case["kind"]]
    return (case["evidence"] * share).float().double().add(1).unsqueeze(0)


def test_stored_truth_up_to_evidence_1e7() -> None:
    cases = [case for case in oracle.golden("f_dirichlet_truth") if case["evidence"] <= 1e7]
    assert len(cases) > 100
    for case in cases:
        alpha = _fixture_alpha(case)
        both = uncertainties(alpha)
        found = [float(score) for score in (*both, kl_to_uniform(alpha))]
        truth = [case["truth"][name] for name in ("aleatoric", "epistemic", "kl_to_uniform")]
        assert found == pytest.approx(truth, rel=0, abs=2e-8), case


@pytest.mark.parametrize("case", oracle.golden("a_uncertainty")["cases"], ids=lambda case: f"C{case['C']}")
def test_the_authors_uncertainties(case: dict) -> None:
    alpha_g, alpha_l = (
        concentration(torch.tensor(case[f"{model}_logits_f32"], dtype=torch.float32))
        for model in ("global", "local")
    )
    reference = {name: torch.tensor(values, dtype=torch.float64) for name, values in case["ref_f64"].items()}
    assert (aleatoric(alpha_g) - reference["g_aleatoric"]).abs().max() < TOLERANCE
    assert (aleatoric(alpha_l) - reference["l_aleatoric"]).abs().max() < TOLERANCE
    assert (epistemic(alpha_g) - reference["g_epistemic"]).abs().max() < TOLERANCE
    exact = concentration(torch.tensor(case["global_logits_f32"], dtype=torch.float64))
    for row, truth in enumerate(case["mpmath_truth_global"]):
        found = [float(score(exact[row : row + 1])) for score in SCORES]
        assert found == pytest.approx(
            [truth["aleatoric"], truth["epistemic"], truth["kl_to_uniform"]], rel=0, abs=2e-8
        )


@settings(max_examples=150, deadline=None)
@given(samples, st.sampled_from([torch.float32, torch.float64]))
def test_mpmath_agrees_on_any_evidence(sample: list[float], dtype: torch.dtype) -> None:
    alpha = torch.tensor([sample], dtype=dtype) + 1
    truth = oracle.dirichlet(alpha[0].tolist())
    found = [float(score(alpha)) for score in SCORES]
    assert found == pytest.approx(truth, rel=0, abs=TOLERANCE)
    assert found == pytest.approx(truth, rel=0, abs=2e-8)


def test_scipy_agrees_on_ordinary_evidence() -> None:
    generator = torch.Generator().manual_seed(1)
    alpha = torch.rand(50, 5, generator=generator, dtype=torch.float64) * 30 + 1
    for row, score, spread in zip(alpha.numpy(), epistemic(alpha), aleatoric(alpha), strict=True):
        assert float(score) == pytest.approx(scipy_dirichlet.entropy(row), abs=1e-8)
        by_hand = (row / row.sum() * (digamma(row.sum() + 1) - digamma(row + 1))).sum()
        assert float(spread) == pytest.approx(by_hand, abs=1e-8)


@settings(max_examples=100, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_invariants(sample: list[float], random) -> None:
    alpha = torch.tensor([sample], dtype=torch.float64) + 1
    shuffled = torch.tensor([random.sample(sample, len(sample))], dtype=torch.float64) + 1
    classes = len(sample)
    assert 0 <= float(aleatoric(alpha)) <= math.log(classes)
    assert float(epistemic(alpha)) <= -math.lgamma(classes)
    assert float(kl_to_uniform(alpha)) >= 0
    assert float(kl_to_uniform(alpha)) == pytest.approx(-float(epistemic(alpha)) - math.lgamma(classes), abs=1e-12)
    for score in SCORES:
        assert float(score(alpha)) == pytest.approx(float(score(shuffled)), abs=1e-10)


@settings(max_examples=50, deadline=None)
@given(samples)
def test_both_at_once_are_the_same_numbers(sample: list[float]) -> None:
    alpha = torch.tensor([sample]) + 1
    both = uncertainties(alpha)
    assert torch.equal(both[0], aleatoric(alpha))
    assert torch.equal(both[1], epistemic(alpha))


@pytest.mark.parametrize("classes", range(2, 11))
def test_no_evidence_is_the_uniform_distribution(classes: int) -> None:
    alpha = torch.ones(1, classes)
    assert float(epistemic(alpha)) == pytest.approx(-math.lgamma(classes), abs=1e-8)
    assert float(kl_to_uniform(alpha)) == pytest.approx(0, abs=1e-8)
    harmonic = sum(1 / k for k in range(2, classes + 1))  # psi(C + 1) - psi(2)
    assert float(aleatoric(alpha)) == pytest.approx(harmonic, abs=1e-8)


def test_maps_are_scored_pixel_by_pixel() -> None:
    alpha = concentration(
        torch.randn(2, 4, 101, 101, generator=torch.Generator().manual_seed(2)) * 9, squared=True
    )
    pixels = alpha.movedim(1, -1).reshape(-1, 4)
    for score in SCORES:
        found = score(alpha)
        assert found.shape == (2, 101, 101)
        assert found.dtype == torch.float64
        assert torch.allclose(found.reshape(-1), score(pixels), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_the_class_dimension_is_where_it_is_said(dim: int) -> None:
    alpha = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(3)) + 1
    first = alpha.movedim(dim, 0)
    for score in SCORES:
        assert torch.allclose(score(alpha, dim=dim), score(first, dim=0), rtol=0, atol=1e-14)
    for one, other in zip(uncertainties(alpha, dim=dim), uncertainties(first, dim=0), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("score", SCORES)
def test_lower_precision_is_scored_in_float64(score, dtype: torch.dtype) -> None:
    alpha = torch.tensor([[1.0, 300.0], [2.5, 1.0]], dtype=dtype)
    assert score(alpha).dtype == torch.float64
    assert torch.equal(score(alpha), score(alpha.double()))


@pytest.mark.parametrize("score", SCORES)
def test_gradients(score) -> None:
    alpha = torch.rand(4, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 40 + 1
    assert torch.autograd.gradcheck(score, alpha.requires_grad_(), atol=1e-6)
    assert torch.autograd.gradgradcheck(score, alpha, atol=1e-5)


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("name", ["aleatoric", "epistemic", "kl"])
def test_gradients_at_large_evidence(name: str, position: int) -> None:
    score = dict(zip(["aleatoric", "epistemic", "kl"], SCORES, strict=True))[name]
    values = [1e5, 3.0, 2e6]
    alpha = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(score(alpha).sum(), alpha)

    def along(value: mp.mpf) -> mp.mpf:
        moved = [value if i == position else mp.mpf(v) for i, v in enumerate(values)]
        total = mp.fsum(moved)
        if name == "aleatoric":
            return mp.fsum(a / total * (mp.digamma(total + 1) - mp.digamma(a + 1)) for a in moved)
        slope = mp.fsum((a - 1) * (mp.digamma(a) - mp.digamma(total)) for a in moved)
        entropy = mp.fsum(mp.loggamma(a) for a in moved) - mp.loggamma(total) - slope
        return entropy if name == "epistemic" else -entropy

    with mp.workdps(60):
        truth = float(mp.diff(along, mp.mpf(values[position])))
    assert float(gradient[0, position]) == pytest.approx(truth, rel=1e-6, abs=1e-14)


def test_with_and_without_gradient_the_scores_agree() -> None:
    alpha = torch.rand(20, 3, dtype=torch.float64) * 100 + 1
    for free, bound in zip(uncertainties(alpha), uncertainties(alpha.clone().requires_grad_()), strict=True):
        assert bound.requires_grad
        assert torch.allclose(free, bound.detach(), rtol=0, atol=2e-8)


def test_float32_divergence_stays_float32_and_does_not_cancel() -> None:
    alpha = torch.tensor([[1.0, 1e3, 1e5], [1e7, 1.0, 1e7]], requires_grad=True)
    found = kl_to_uniform(alpha, dtype=torch.float32)
    assert found.dtype == torch.float32
    truth = [oracle.dirichlet(row).kl for row in alpha.tolist()]
    assert found.tolist() == pytest.approx(truth, rel=1e-6)
    found.sum().backward()
    assert alpha.grad is not None
    assert alpha.grad.dtype == torch.float32


def test_concentrations_below_one_are_right_too() -> None:
    alpha = torch.tensor([[0.2, 0.3, 0.9], [0.5, 40.0, 1.0]], dtype=torch.float64)
    truth = [oracle.dirichlet(row) for row in alpha.tolist()]
    assert aleatoric(alpha).tolist() == pytest.approx([t.aleatoric for t in truth], abs=1e-10)
    assert epistemic(alpha).tolist() == pytest.approx([t.epistemic for t in truth], abs=1e-10)
    assert kl_to_uniform(alpha).tolist() == pytest.approx([t.kl for t in truth], abs=1e-10)
    assert torch.autograd.gradcheck(epistemic, alpha.requires_grad_())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_stays_visible(value: float) -> None:
    alpha = torch.tensor([[value, 1.0], [3.0, 1.0]])
    for score in (*uncertainties(alpha), kl_to_uniform(alpha)):
        assert score.isnan().tolist() == [True, False]


def test_an_empty_batch_has_no_scores() -> None:
    for score in (*uncertainties(torch.ones(0, 3)), kl_to_uniform(torch.ones(0, 3))):
        assert score.shape == (0,)


@pytest.mark.parametrize("score", [*SCORES, uncertainties, expected_probability, concentration])
def test_a_missing_class_dimension_is_an_error(score) -> None:
    with pytest.raises(IndexError):
        score(torch.ones(2, 3), dim=2)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("relu", [1.0, 1.0, 3.5]),
        ("softplus", [1 + math.log1p(math.exp(-3)), 1 + math.log(2), 1 + math.log1p(math.exp(2.5))]),
        ("exp", [1 + math.exp(-3), 2.0, 1 + math.exp(2.5)]),
    ],
)
def test_activations(activation: str, expected: list[float]) -> None:
    logits = torch.tensor([[-3.0, 0.0, 2.5]], dtype=torch.float64)
    assert concentration(logits, activation)[0].tolist() == pytest.approx(expected)
    assert concentration(logits, activation, True)[0].tolist() == pytest.approx([e * e for e in expected])
    assert logits.tolist() == [[-3.0, 0.0, 2.5]]


def test_exp_is_clamped() -> None:
    found = concentration(torch.tensor([[-1e4, 1e4]], dtype=torch.float64), "exp")
    assert found[0].tolist() == pytest.approx([1 + math.exp(-10), 1 + math.exp(10)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_concentration_keeps_the_dtype(dtype: torch.dtype) -> None:
    assert concentration(torch.zeros(1, 2, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("activation", ["relu", "softplus", "exp"])
@pytest.mark.parametrize("squared", [False, True])
def test_concentration_carries_the_gradient(activation: str, squared: bool) -> None:
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: concentration(z, activation, squared), logits)


def test_an_unknown_activation_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'tanh'.*relu, softplus, exp"):
        concentration(torch.zeros(1, 2), "tanh")


@given(samples)
def test_expected_probability_is_a_distribution(sample: list[float]) -> None:
    probability = expected_probability(torch.tensor([sample], dtype=torch.float64) + 1)
    assert float(probability.sum()) == pytest.approx(1)
    assert bool((probability > 0).all())


@pytest.mark.parametrize("a", [1e3, 1e5, 1e7])
def test_the_float32_gradient_of_the_divergence_does_not_cancel(a: float) -> None:
    alpha = torch.tensor([[a, 2 * a, 1.0]], requires_grad=True)
    kl_to_uniform(alpha, dtype=torch.float32).sum().backward()
    total = mp.mpf(3 * a + 1)
    truth = [
        (value - 1) * mp.psi(1, value) - (total - 3) * mp.psi(1, total)
        for value in (mp.mpf(a), mp.mpf(2 * a), mp.mpf(1))
    ]
    torch.testing.assert_close(alpha.grad, torch.tensor([[float(value) for value in truth]]), rtol=1e-5, atol=0)


# The fits


POINTS = torch.cat([torch.linspace(1, 12, 300), torch.logspace(1, 14, 200)]).double()
FITS = [dirichlet._twice_digamma_next, dirichlet._entropy_remainder]


def _remainder(x: mp.mpf) -> mp.mpf:
    return (
        mp.loggamma(x) - (x - 1) * mp.digamma(x) + x - mp.digamma(x + 1) / 2 - (mp.log(2) + mp.log(mp.pi) + 1) / 2
    )


def test_digamma_is_right_to_a_billionth() -> None:
    truth = torch.tensor([float(mp.digamma(mp.mpf(x) + 1)) for x in POINTS.tolist()], dtype=torch.float64)
    assert (dirichlet._twice_digamma_next(POINTS) / 2 - truth).abs().max() < 6e-10


def test_remainder_is_right_to_a_billionth() -> None:
    with mp.workdps(50):
        truth = torch.tensor([float(_remainder(mp.mpf(x))) for x in POINTS.tolist()], dtype=torch.float64)
    assert (dirichlet._REMAINDER_SCALE * dirichlet._entropy_remainder(POINTS) - truth).abs().max() < 9e-10


def test_constant() -> None:
    assert pytest.approx(float((mp.log(2 * mp.pi) + 1) / 2), abs=1e-15) == dirichlet._HALF_LOG_2_PI_E


@pytest.mark.parametrize("function", FITS)
def test_float32_stays_in_float32_and_finite(function) -> None:
    x = torch.cat([POINTS, torch.tensor([1e18])]).float()
    result = function(x)
    assert result.dtype == torch.float32
    assert torch.allclose(result.double(), function(x.double()), rtol=3e-7, atol=3e-7)


@pytest.mark.parametrize("function", FITS)
def test_the_argument_is_left_alone(function) -> None:
    x = POINTS.clone()
    function(x)
    assert torch.equal(x, POINTS)


def test_constants_made_in_inference_mode_serve_afterwards() -> None:
    with torch.inference_mode():
        dirichlet._twice_digamma_next(torch.ones(2, dtype=torch.float64))
    assert not dirichlet._twice_digamma_next(torch.ones(2, dtype=torch.float64)).add_(1).is_inference()


# Blocks


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 3), 1), ((3, 5), 0), ((4, 3, 6, 7), 1), ((4, 6, 3, 7), -2), ((2, 5, 3), 2), ((3,), 0)]
)
def test_any_block_size_covers_every_position(shape, dim, size, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "_BLOCK", size)
    alpha = 1 + 9 * torch.rand(shape, generator=torch.Generator().manual_seed(0))
    spread, entropy = uncertainties(alpha, dim)
    exact = alpha.double()
    total = exact.sum(dim, keepdim=True)
    digamma = torch.digamma(total + 1) - torch.digamma(exact + 1)
    assert spread.dtype == entropy.dtype == torch.float64
    assert torch.allclose(spread, (exact / total * digamma).sum(dim), rtol=0, atol=2e-8)
    truth = torch.distributions.Dirichlet(exact.movedim(dim, -1)).entropy()
    assert torch.allclose(entropy, truth, rtol=0, atol=2e-8)


def test_memory_layout_does_not_matter() -> None:
    alpha = 1 + torch.rand(2, 3, 8, 8)
    last = alpha.to(memory_format=torch.channels_last)
    assert torch.equal(torch.stack(uncertainties(alpha)), torch.stack(uncertainties(last)))


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0)])
def test_nothing_in_nothing_out(shape) -> None:
    for result in uncertainties(torch.ones(shape)):
        assert result.shape == (shape[0], *shape[2:])
