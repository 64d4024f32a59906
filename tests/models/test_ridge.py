"""The ridge head: sums over sites train as all samples in one place, and leave-one-out is refitting."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from torch import Tensor

from feal.models.ridge import (
    ABSENT,
    LAMBDAS,
    TEMPERATURES,
    RidgeSums,
    adapt_ridge,
    choose_by_losses,
    find_present,
    make_head,
    score_left_out,
    share_classes,
    solve_ridge,
    sum_samples,
    tabulate_losses,
)

CLASSES = 4
PENALTY = 0.03


def draw(count: int = 60, width: int = 7, *, seed: int = 0, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Features around a centre of each class, and classes, some of them rare."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.arange(1.0, classes + 1), count, replacement=True, generator=generator)
    labels[: 2 * classes] = torch.arange(classes).repeat(2)[: len(labels[: 2 * classes])]
    centres = torch.randn(classes, width, generator=generator)
    return centres[labels] + torch.randn(count, width, generator=generator), labels


def count(labels: Tensor, classes: int = CLASSES) -> Tensor:
    return torch.bincount(labels, minlength=classes).double()


def solve(features: Tensor, labels: Tensor, penalty: float = PENALTY) -> Tensor:
    return solve_ridge(sum_samples(features, share_classes(labels, CLASSES), count(labels)), penalty)


def cells(images: int = 5, side: int = 3, width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Features and shares of the cells of a few masks, and counts in cells."""
    generator = torch.Generator().manual_seed(1)
    masks = torch.randint(0, 3, (images, 4 * side, 4 * side), generator=generator)
    shares = share_classes(masks, 3, cells=(side, side))
    features = torch.randn(images * side**2, width, generator=generator)
    return features, shares, shares.sum(0)


@pytest.mark.parametrize("sites", [2, 4, 12])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 3.0])
def test_sums_of_sites_train_as_all_samples_in_one_place(sites: int, penalty: float) -> None:
    features, labels = draw()
    shares, counts = share_classes(labels, CLASSES), count(labels)
    parts = [sum_samples(features[site::sites], shares[site::sites], counts) for site in range(sites)]
    total = sum(parts[1:], parts[0])
    torch.testing.assert_close(solve_ridge(total, penalty), solve(features, labels, penalty), rtol=0, atol=1e-6)


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 3.0])
def test_it_is_the_ridge_of_scikit_learn(penalty: float) -> None:
    features, labels = draw()
    counts = count(labels)
    weight = counts[labels].reciprocal()
    weight = weight / weight.sum()
    target = 2 * share_classes(labels, CLASSES) - 1
    expected = Ridge(alpha=penalty * features.shape[1]).fit(
        features.double().numpy(), target.numpy(), sample_weight=weight.numpy()
    )
    found = solve(features, labels, penalty).numpy()
    np.testing.assert_allclose(found[:-1], expected.coef_.T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[-1], expected.intercept_, rtol=0, atol=1e-6)


def test_shares_of_a_cell_are_its_target() -> None:
    features, shares, counts = cells()
    parts = shares / counts
    weight = parts.sum(1)
    target = 2 * parts / weight[:, None] - 1
    expected = Ridge(alpha=PENALTY * features.shape[1]).fit(
        features.double().numpy(), target.numpy(), sample_weight=(weight / weight.sum()).numpy()
    )
    found = solve_ridge(sum_samples(features, shares, counts), PENALTY).numpy()
    np.testing.assert_allclose(found[:-1], expected.coef_.T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[-1], expected.intercept_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_the_exponent_of_balance_weighs_classes(balance: float) -> None:
    features, labels = draw()
    counts = count(labels)
    sums = sum_samples(features, share_classes(labels, CLASSES), counts**balance)
    weight = counts[labels] ** -balance
    expected = Ridge(alpha=PENALTY * features.shape[1]).fit(
        features.double().numpy(),
        (2 * share_classes(labels, CLASSES) - 1).numpy(),
        sample_weight=(weight / weight.sum()).numpy(),
    )
    np.testing.assert_allclose(solve_ridge(sums, PENALTY)[:-1].numpy(), expected.coef_.T, rtol=0, atol=1e-6)
    of_class = (sums.moments[-1] + sums.gram[-1, -1]) / 2
    torch.testing.assert_close(of_class, counts ** (1 - balance))


def test_sums_travel_as_tensors_and_can_be_subtracted() -> None:
    features, labels = draw()
    shares, counts = share_classes(labels, CLASSES), count(labels)
    one, other = sum_samples(features[:20], shares[:20], counts), sum_samples(features[20:], shares[20:], counts)
    left = RidgeSums.from_tensors((one + other).tensors()) - other
    torch.testing.assert_close(left.gram, one.gram)
    torch.testing.assert_close(left.moments, one.moments)
    assert one.gram.dtype == one.moments.dtype == torch.float64


def test_masks_are_averaged_by_cell() -> None:
    masks = torch.randint(0, 3, (2, 6, 8), generator=torch.Generator().manual_seed(0))
    shares = share_classes(masks, 3, cells=(3, 4))
    assert shares.shape == (2 * 3 * 4, 3)
    cell = masks[1, 2:4, 6:8]
    expected = [float((cell == label).double().mean()) for label in range(3)]
    assert shares[12 + 4 + 3].tolist() == expected


@pytest.mark.parametrize("penalty", [1e-3, 0.1, 1.0])
def test_leaving_one_out_is_refitting_without_it(penalty: float) -> None:
    features, labels = draw(30)
    shares, counts = share_classes(labels, CLASSES), count(labels)
    total = sum_samples(features, shares, counts)
    found = score_left_out(features, shares, counts, total=total, penalty=penalty)
    for row in range(len(features)):
        others = torch.arange(len(features)) != row
        sums = sum_samples(features[others], shares[others], counts)
        # The loss is still divided by the sum of all weights, the sample's own among them (that of an image that
        # is left out is not), so the penalty is as large as it was, relative to the others.
        head = solve_ridge(sums, penalty * float(total.gram[-1, -1] / sums.gram[-1, -1]))
        expected = features[row].double() @ head[:-1] + head[-1]
        torch.testing.assert_close(found[row], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("penalty", [1e-3, 0.1])
def test_leaving_out_an_image_is_refitting_without_it(penalty: float) -> None:
    features, shares, counts = cells()
    total = sum_samples(features, shares, counts)
    found = score_left_out(features, shares, counts, total=total, penalty=penalty, group=9)
    for image in range(5):
        own = torch.arange(len(features)) // 9 == image
        head = solve_ridge(sum_samples(features[~own], shares[~own], counts), penalty)
        expected = features[own].double() @ head[:-1] + head[-1]
        torch.testing.assert_close(found[own], expected, rtol=1e-6, atol=1e-9)


def test_without_another_image_nothing_is_known() -> None:
    features, shares, counts = cells(images=1)
    total = sum_samples(features, shares, counts)
    found = score_left_out(features, shares, counts, total=total, penalty=0.1, group=9)
    assert torch.equal(found, torch.zeros_like(shares))


def test_left_out_of_the_sums_of_all_sites() -> None:
    features, labels = draw()
    shares, counts = share_classes(labels, CLASSES), count(labels)
    total = sum_samples(features, shares, counts)
    whole = score_left_out(features, shares, counts, total=total, penalty=0.1)
    parts = [score_left_out(features[s::3], shares[s::3], counts, total=total, penalty=0.1) for s in range(3)]
    for site, part in enumerate(parts):
        torch.testing.assert_close(part, whole[site::3])


def test_a_class_that_nobody_has_is_impossible() -> None:
    features, labels = draw(classes=3)
    sums = sum_samples(features, share_classes(labels, CLASSES), count(labels))
    assert find_present(sums).tolist() == [True, True, True, False]
    head = make_head(solve_ridge(sums, PENALTY), find_present(sums), 4.0)
    logits = features @ head["weight"].T + head["bias"]
    assert logits[:, 3].tolist() == [ABSENT] * len(features)
    assert float(logits.softmax(1)[:, 3].max()) < 1e-20
    assert head["weight"].dtype == head["bias"].dtype == torch.float32


def test_a_rare_class_among_very_many_is_still_there() -> None:
    features, labels = draw(40, classes=2)
    labels[:] = 0
    labels[7] = 1
    for balance in (0.0, 1.0):
        sums = sum_samples(features, share_classes(labels, CLASSES), count(labels) ** balance)
        assert find_present(sums).tolist() == [True, True, False, False]


def test_a_head_is_its_solution_times_the_temperature() -> None:
    features, labels = draw()
    solution = solve(features, labels)
    head = make_head(solution, torch.ones(CLASSES, dtype=torch.bool), 3.0)
    expected = 3 * (features.double() @ solution[:-1] + solution[-1])
    torch.testing.assert_close(features @ head["weight"].T + head["bias"], expected.float(), rtol=1e-5, atol=1e-5)


def test_a_site_with_fewer_labels_than_classes_adds_to_the_others() -> None:
    features, labels = draw()
    shares, counts = share_classes(labels, CLASSES), count(labels)
    few = sum_samples(features[:2], shares[:2], counts)
    assert find_present(few).tolist() == [True, True, False, False]
    rest = sum_samples(features[2:], shares[2:], counts)
    torch.testing.assert_close(solve_ridge(few + rest, PENALTY), solve(features, labels), rtol=0, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 3])
def test_fewer_samples_than_features_are_enough(samples: int) -> None:
    features, labels = draw(samples, width=20)
    sums = sum_samples(features, share_classes(labels, CLASSES), count(labels))
    assert int(torch.linalg.matrix_rank(sums.gram)) <= samples
    solution = solve_ridge(sums, 1e-3)
    assert bool(solution.isfinite().all())
    fitted = features.double() @ solution[:-1] + solution[-1]
    assert fitted.argmax(1).tolist() == labels.tolist()
    if samples > 1:
        scores = score_left_out(features, share_classes(labels, CLASSES), count(labels), total=sums, penalty=1e-3)
        assert bool(scores.isfinite().all())


def test_sums_of_nothing_are_refused() -> None:
    nothing = sum_samples(torch.zeros(0, 3), torch.zeros(0, CLASSES), torch.ones(CLASSES))
    with pytest.raises(ValueError, match="of no sample"):
        solve_ridge(nothing, PENALTY)
    with pytest.raises(ValueError, match="of no sample"):
        adapt_ridge(torch.zeros(4, CLASSES), nothing, PENALTY)


def plain_table(features: Tensor, labels: Tensor, classes: int) -> list[float]:
    """The table by loops over samples; a sample alone in its class and classes without samples do not count."""
    shares, counts = share_classes(labels, classes), count(labels, classes)
    total = sum_samples(features, shares, counts)
    table = []
    for penalty in LAMBDAS:
        scores = score_left_out(features, shares, counts, total=total, penalty=penalty).tolist()
        for temperature in TEMPERATURES:
            loss = 0.0
            for row, label in zip(scores, labels.tolist(), strict=True):
                if counts[label] < 2:
                    continue
                known = [temperature * score for score, n in zip(row, counts.tolist(), strict=True) if n > 0]
                top = max(known)
                norm = top + math.log(sum(math.exp(score - top) for score in known))
                loss += (norm - temperature * row[label]) / float(counts[label])
            table.append(loss)
    return [*table, float((counts > 1).sum())]


def test_the_table_is_the_log_loss_of_what_was_left_out() -> None:
    features, labels = draw(20, classes=3)
    labels = torch.where(labels == 2, 1, labels)
    labels[0] = 2
    classes = 5
    shares, counts = share_classes(labels, classes), count(labels, classes)
    assert counts.tolist()[2:] == [1, 0, 0]
    total = sum_samples(features, shares, counts)
    found = tabulate_losses(features, shares, counts, total=total)
    assert found.shape == (len(LAMBDAS) * len(TEMPERATURES) + 1,)
    np.testing.assert_allclose(found.numpy(), plain_table(features, labels, classes), rtol=1e-9)
    halves = [tabulate_losses(features[h::2], shares[h::2], counts, total=total) for h in range(2)]
    torch.testing.assert_close(halves[0] + halves[1], found)


def test_a_given_penalty_takes_the_row_next_to_it() -> None:
    features, labels = draw()
    shares, counts = share_classes(labels, CLASSES), count(labels)
    total = sum_samples(features, shares, counts)
    whole = tabulate_losses(features, shares, counts, total=total)[:-1].reshape(len(LAMBDAS), -1)
    table = tabulate_losses(features, shares, counts, total=total, penalty=0.1)[:-1].reshape(len(LAMBDAS), -1)
    row = LAMBDAS.index(0.1)
    torch.testing.assert_close(table[row], whole[row])
    assert float(table.abs().sum(1).count_nonzero()) == 1
    near = tabulate_losses(features, shares, counts, total=total, penalty=0.12)[:-1].reshape(len(LAMBDAS), -1)
    assert float(near[row].sum()) > 0
    assert not torch.equal(near[row], table[row])


def test_the_table_of_images_leaves_whole_images_out() -> None:
    features, shares, counts = cells()
    total = sum_samples(features, shares, counts)
    by_image = tabulate_losses(features, shares, counts, total=total, group=9)
    by_cell = tabulate_losses(features, shares, counts, total=total)
    assert float(by_image[-1]) == pytest.approx(float(by_cell[-1])) == pytest.approx(3)
    scores = score_left_out(features, shares, counts, total=total, penalty=LAMBDAS[2], group=9)
    expected = -((shares / counts) * torch.log_softmax(TEMPERATURES[3] * scores, 1)).sum()
    place = 2 * len(TEMPERATURES) + 3
    assert float(by_image[place]) == pytest.approx(float(expected))
    assert float(by_image[place]) != pytest.approx(float(by_cell[place]))


def make_table(low: tuple[int, int]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    table = 1 + torch.rand(len(LAMBDAS), len(TEMPERATURES), generator=generator, dtype=torch.float64)
    table[low] = 0.5
    return torch.cat([table.flatten(), torch.ones(1, dtype=torch.float64)])


@pytest.mark.parametrize("low", [(0, 0), (2, 5), (6, 8)])
def test_the_smallest_loss_is_chosen(low: tuple[int, int]) -> None:
    assert choose_by_losses(make_table(low)) == (LAMBDAS[low[0]], TEMPERATURES[low[1]])


def test_what_is_given_is_kept() -> None:
    table = make_table((2, 5))
    losses = table[:-1].reshape(len(LAMBDAS), len(TEMPERATURES))
    assert choose_by_losses(table, penalty=0.25) == (0.25, TEMPERATURES[int(losses[LAMBDAS.index(0.3)].argmin())])
    assert choose_by_losses(table, temperature=2.2) == (
        LAMBDAS[int(losses[:, TEMPERATURES.index(2.0)].argmin())],
        2.2,
    )
    assert choose_by_losses(table, penalty=7.0, temperature=0.1) == (7.0, 0.1)


def test_without_samples_the_middle_is_taken() -> None:
    nothing = torch.zeros(len(LAMBDAS) * len(TEMPERATURES) + 1, dtype=torch.float64)
    assert choose_by_losses(nothing) == (0.03, 4.0)
    assert choose_by_losses(nothing, penalty=0.5) == (0.5, 4.0)
    assert choose_by_losses(nothing, temperature=9.0) == (0.03, 9.0)


def adapted_loss(head: Tensor, near: Tensor, features: Tensor, labels: Tensor, penalty: float) -> Tensor:
    """What `adapt_ridge` is to minimise."""
    counts = count(labels)
    weight = counts[labels].reciprocal()
    scores = features.double() @ head[:-1] + head[-1]
    error = (scores - (2 * share_classes(labels, CLASSES) - 1)).square().sum(1)
    return (weight * error).sum() / weight.sum() + penalty * features.shape[1] * (head - near).square().sum()


def test_the_adapted_head_is_a_minimum_near_the_given_one() -> None:
    features, labels = draw(width=3)
    others, known = draw(width=3, seed=1)
    near = solve(others, known)
    own = sum_samples(features, share_classes(labels, CLASSES), count(labels))
    found = adapt_ridge(near, own, PENALTY)
    head = found.clone().requires_grad_()
    adapted_loss(head, near, features, labels, PENALTY).backward()
    assert head.grad is not None
    assert float(head.grad.abs().max()) < 1e-10

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(flat.copy()).reshape(near.shape).requires_grad_()
        value = adapted_loss(point, near, features, labels, PENALTY)
        value.backward()
        assert point.grad is not None
        return value.item(), point.grad.numpy().ravel()

    searched = minimize(loss, near.numpy().ravel(), jac=True, method="L-BFGS-B", options={"gtol": 1e-10})
    np.testing.assert_allclose(found.numpy().ravel(), searched.x, atol=1e-5)


def test_a_large_penalty_keeps_the_given_head_and_a_fitting_one_stays() -> None:
    features, labels = draw()
    near = solve(*draw(seed=1))
    own = sum_samples(features, share_classes(labels, CLASSES), count(labels))
    torch.testing.assert_close(adapt_ridge(near, own, 1e9), near, rtol=1e-6, atol=1e-6)
    exact = solve_ridge(own, 1e-12)
    torch.testing.assert_close(adapt_ridge(exact, own, PENALTY), exact, rtol=1e-6, atol=1e-6)
