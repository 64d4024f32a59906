import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feal.evidential import EvidentialCrossEntropy, EvidentialDice, concentration
from feal.evidential.losses import EvidentialObjective
from tests.evidential import oracle

PRECISION = {"torch.float32": (torch.float32, 1e-5, 1e-9), "torch.float64": (torch.float64, 1e-7, 1e-15)}
BOTH = [EvidentialCrossEntropy, EvidentialDice]


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _check_golden(loss: EvidentialObjective, case: dict) -> None:
    dtype, tolerance, nothing = PRECISION[case["dtype"]]
    logits = torch.tensor(case["logits"], dtype=dtype, requires_grad=True)
    found = loss(logits, torch.tensor(case["labels"]), case["epoch"])
    assert found.dtype == dtype
    assert float(found.detach()) == pytest.approx(case["loss"], rel=tolerance)
    found.backward()
    assert torch.allclose(logits.grad, torch.tensor(case["grad"], dtype=dtype), rtol=tolerance, atol=nothing)


def test_the_authors_classification_loss_and_gradient() -> None:
    cases = oracle.golden("b_edl_loss")
    assert len(cases) == 120
    for case in cases:
        dtype = PRECISION[case["dtype"]][0]
        weight = None if case["prior"] is None else 2 - torch.tensor(case["prior"], dtype=dtype)
        _check_golden(EvidentialCrossEntropy(case["kl_weight"], case["annealing_step"], weight), case)


def test_the_authors_segmentation_loss_and_gradient() -> None:
    cases = oracle.golden("c_edl_dice")
    assert len(cases) == 12
    for case in cases:
        _check_golden(EvidentialDice(case["kl_weight"], case["annealing_step"]), case)


ACTIVATION = {
    "relu": lambda z: max(z, mp.mpf(0)),
    "softplus": lambda z: mp.log(1 + mp.exp(z)),
    "exp": lambda z: mp.exp(min(max(z, -10), 10)),
}


def _truth(loss: EvidentialObjective, logits: Tensor, target: Tensor, step: float) -> float:
    """Both losses by the method's formulas, number by number in mpmath."""
    rows = logits.movedim(1, -1).reshape(-1, logits.shape[1]).tolist()
    labels = target.reshape(-1).tolist()
    classes, task, regulariser = logits.shape[1], mp.mpf(0), mp.mpf(0)
    overlap, size = [mp.mpf(0)] * classes, [mp.mpf(0)] * classes
    factor = min(1, mp.mpf(step) / loss.annealing) if loss.annealing else 1
    for row, label in zip(rows, labels, strict=True):
        alpha = [(ACTIVATION[loss.activation](mp.mpf(z)) + 1) ** (2 if loss.squared else 1) for z in row]
        total = mp.fsum(alpha)
        weight = 1.0 if getattr(loss, "class_weight", None) is None else float(loss.class_weight[label])
        task += weight * (mp.digamma(total) - mp.digamma(alpha[label])) / len(rows)
        other = [mp.mpf(1) if c == label else a for c, a in enumerate(alpha)]
        regulariser += (factor * mp.mpf(oracle.dirichlet(other).kl) - classes / total * mp.mpf(row[label])) / len(
            rows
        )
        for c, a in enumerate(alpha):
            p = a / total
            overlap[c] += p * (c == label)
            size[c] += (c == label) + p**2 + p * (1 - p) / (total + 1)
    if isinstance(loss, EvidentialDice):
        task = 1 - mp.fsum((2 * o + 1e-5) / (s + 1e-5) for o, s in zip(overlap, size, strict=True)) / classes
    return float(task + loss.lambda_ * regulariser)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 6),
    activation=st.sampled_from(["relu", "softplus", "exp"]),
    squared=st.booleans(),
    step=st.floats(0, 20),
    annealing=st.sampled_from([None, 0, 3, 10]),
    spatial=st.sampled_from([(), (2, 3)]),
    dice=st.booleans(),
)
def test_the_formulas_in_mpmath(seed, classes, activation, squared, step, annealing, spatial, dice) -> None:
    logits = torch.randn(3, classes, *spatial, generator=_generator(seed), dtype=torch.float64) * 4
    target = torch.randint(classes, (3, *spatial), generator=_generator(seed))
    weight = torch.rand(classes, generator=_generator(seed), dtype=torch.float64) + 0.5
    loss = (
        EvidentialDice(0.3, annealing, squared, activation=activation)
        if dice
        else EvidentialCrossEntropy(0.3, annealing, weight, activation=activation, squared=squared)
    )
    assert float(loss(logits, target, step)) == pytest.approx(
        _truth(loss, logits, target, step), rel=1e-8, abs=1e-8
    )


@pytest.mark.parametrize("activation", ["relu", "softplus", "exp"])
@pytest.mark.parametrize("spatial", [(), (2, 2)])
@pytest.mark.parametrize("kind", BOTH)
def test_gradients(kind, activation: str, spatial: tuple[int, ...]) -> None:
    logits = torch.randn(3, 4, *spatial, generator=_generator(1), dtype=torch.float64) * 3
    target = torch.randint(4, (3, *spatial), generator=_generator(1))
    plain = kind(0.5, None, activation=activation)
    # S carries no gradient in the evidence term, which finite differences do not know: leave that term out.
    assert torch.autograd.gradcheck(
        lambda z: plain.task(_alpha(plain, z), _index(target)), logits.requires_grad_()
    )

    def divergence(z: Tensor) -> Tensor:
        return plain.divergence(_alpha(plain, z).scatter(1, _index(target), 1.0))

    assert torch.autograd.gradcheck(divergence, logits, atol=1e-6)


def _alpha(loss: EvidentialObjective, logits: Tensor) -> Tensor:
    return concentration(logits, loss.activation, loss.squared)


def _index(target: Tensor) -> Tensor:
    return target.unsqueeze(1)


@pytest.mark.parametrize("kind", BOTH)
def test_the_evidence_term_has_the_published_gradient(kind) -> None:
    logits = torch.randn(5, 3, generator=_generator(2), dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 2, 0, 1])
    with_term, without = kind(1.0, None), kind(0.0, None)
    (total,) = torch.autograd.grad(with_term(logits, target, 0), logits)
    (task,) = torch.autograd.grad(without(logits, target, 0), logits)
    alpha = _alpha(with_term, logits)
    (divergence,) = torch.autograd.grad(with_term.divergence(alpha.scatter(1, _index(target), 1.0)).mean(), logits)
    expected = torch.zeros_like(logits).scatter(1, _index(target), -3 / alpha.detach().sum(1, keepdim=True) / 5)
    assert torch.allclose(total - task - divergence, expected, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), squared=st.booleans(), kind=st.sampled_from(BOTH))
def test_without_evidence_only_the_evidence_term_moves_anything(seed: int, squared: bool, kind) -> None:
    logits = -torch.rand(4, 3, generator=_generator(seed)) - 0.01
    target = torch.randint(3, (4,), generator=_generator(seed))
    dead = logits.clone().requires_grad_()
    kind(0.0, None, squared=squared)(dead, target, 5).backward()
    assert torch.equal(dead.grad, torch.zeros_like(logits))
    revived = logits.clone().requires_grad_()
    kind(0.5, None, squared=squared)(revived, target, 5).backward()
    own = revived.grad.gather(1, _index(target))
    assert bool((own < 0).all())  # descent raises the true class
    assert torch.equal(revived.grad.scatter(1, _index(target), 0.0), torch.zeros_like(logits))


def test_a_map_is_a_batch_of_pixels() -> None:
    logits = torch.randn(2, 3, 4, 5, generator=_generator(3), dtype=torch.float64)
    target = torch.randint(3, (2, 4, 5), generator=_generator(3))
    pixels, labels = logits.movedim(1, -1).reshape(-1, 3), target.reshape(-1)
    for loss in (EvidentialCrossEntropy(0.1, 10, torch.tensor([1.0, 2.0, 0.5])), EvidentialDice(0.1, 10)):
        assert float(loss(logits, target, 3)) == pytest.approx(float(loss(pixels, labels, 3)), rel=1e-12)
        assert torch.equal(loss(logits, target, 3), loss(logits, target.unsqueeze(1), 3))
        assert torch.equal(loss(logits, target, 3), loss(logits, target.to(torch.uint8), 3))


@pytest.mark.parametrize("kind", BOTH)
def test_annealing(kind) -> None:
    logits = torch.randn(4, 3, generator=_generator(4), dtype=torch.float64) * 3
    target = torch.tensor([0, 1, 2, 0])
    start, half, full, later = (float(kind(0.1, 10)(logits, target, step)) for step in (0, 5, 10, 50))
    assert start < half < full
    assert half == pytest.approx((start + full) / 2)
    assert later == full
    assert float(kind(0.1, None)(logits, target, 0)) == float(kind(0.1, 0)(logits, target, 0)) == full


def test_the_weight_touches_only_the_task() -> None:
    logits = torch.randn(4, 3, generator=_generator(5), dtype=torch.float64)
    target = torch.tensor([2, 2, 2, 2])
    weight = torch.tensor([1.0, 1.0, 3.0])
    task = EvidentialCrossEntropy(0.0, None)(logits, target, 0)
    plain = EvidentialCrossEntropy(0.7, None)(logits, target, 0)
    weighted = EvidentialCrossEntropy(0.7, None, weight)(logits, target, 0)
    assert float(weighted - plain) == pytest.approx(float(2 * task))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(kind, dtype: torch.dtype) -> None:
    logits = torch.randn(2, 3, 4, 4, generator=_generator(6)).to(dtype).requires_grad_()
    target = torch.randint(3, (2, 4, 4), generator=_generator(6))
    found = kind(0.1, 10)(logits, target, 5)
    assert found.dtype == torch.float32
    assert torch.equal(found, kind(0.1, 10)(logits.detach().float(), target, 5))
    found.backward()
    assert logits.grad.dtype == dtype


def test_float32_is_close_to_float64_on_maps() -> None:
    logits = torch.randn(2, 2, 64, 64, generator=_generator(7)) * 8
    target = torch.randint(2, (2, 64, 64), generator=_generator(7))
    loss = EvidentialDice(0.1, None)
    single, double = logits.clone().requires_grad_(), logits.double().requires_grad_()
    values = loss(single, target, 0), loss(double, target, 0)
    assert float(values[0].detach()) == pytest.approx(float(values[1].detach()), rel=1e-5)
    for value in values:
        value.backward()
    assert torch.allclose(single.grad.double(), double.grad, rtol=1e-4, atol=1e-9)


def test_the_weight_moves_with_the_module() -> None:
    loss = EvidentialCrossEntropy(0.1, 10, torch.ones(3))
    assert [name for name, _ in loss.named_buffers()] == ["class_weight"]
    assert loss.double().class_weight.dtype == torch.float64


@pytest.mark.parametrize("kind", BOTH)
def test_settings_out_of_range(kind) -> None:
    with pytest.raises(ValueError, match="lambda"):
        kind(-0.1, 10)
    with pytest.raises(ValueError, match="annealing"):
        kind(0.1, -1)
    with pytest.raises(ValueError, match="relu, softplus, exp"):
        kind(0.1, 10, activation="tanh")
    with pytest.raises(ValueError, match="step"):
        kind(0.1, 10)(torch.zeros(1, 2), torch.tensor([0]), -1)
    with pytest.raises(ValueError, match="class 2, but there are only classes 0 to 1"):
        kind(0.1, 10)(torch.zeros(1, 2), torch.tensor([2]), 0)


def test_class_weights_of_another_length() -> None:
    with pytest.raises(ValueError, match=r"\[2\] class weights do not fit 3 classes"):
        EvidentialCrossEntropy(0.1, 10, torch.ones(2))(torch.zeros(1, 3), torch.tensor([0]), 0)


def test_the_common_part_has_no_task() -> None:
    with pytest.raises(TypeError, match="task"):
        EvidentialObjective(0.1, 10, activation="relu", squared=False)  # type: ignore[abstract]
