"""ProbCover against scikit-activeml, given the radius."""

import numpy as np
import pytest
import torch
from skactiveml.pool import ProbCover as Independent

from feal.selection.balls import pure_square
from feal.selection.strategies.probcover import ProbCover
from feal.testing import StrategyContract
from tests.selection.strategies.test_maxherding import named
from tests.selection.strategies.test_typiclust import OurClusters
from tests.selection.test_coverage import draw_points


class TestProbCover(StrategyContract):
    strategy = ProbCover
    draws = True


@pytest.mark.parametrize("kind", ["random", "clusters"])
@pytest.mark.parametrize("known", [0, 6])
def test_scikit_activeml_chooses_the_same(kind: str, known: int) -> None:
    points = draw_points(kind, 200, 3)
    pool, labelled = points[known:], points[:known]
    square = pure_square(torch.cat((pool, labelled)), 3, 0.95, generator=torch.Generator().manual_seed(0))
    labels = np.full(len(points), np.nan)
    labels[len(pool) :] = 0
    radii = [share * square**0.5 for share in (0.9, 1.0, 1.001)]
    independent = Independent(n_classes=3, deltas=radii, cluster_algo=OurClusters, random_state=0)
    _, gains = independent.query(
        torch.cat((pool, labelled)).double().numpy(), labels, batch_size=12, return_utilities=True
    )
    choice = (
        TestProbCover()
        .build()
        .choose(
            named(pool),
            named(labelled, "l"),
            TestProbCover().context("classification"),
            12,
            torch.Generator().manual_seed(0),
        )
    )
    assert independent.delta_max_ == square**0.5  # a little more is not pure
    # Of equal gains it draws one: only the first is the same choice for sure.
    assert round(float(choice.parts["score"][0]) * len(pool)) == int(np.nanmax(gains[0]))
    assert gains[0][int(choice.ids[0][1:])] == np.nanmax(gains[0])
    assert float(choice.parts["score"].sum()) * len(pool) == pytest.approx(np.nanmax(gains, 1).sum(), rel=0.1)


def test_purity_is_a_share() -> None:
    with pytest.raises(ValueError, match="purity"):
        ProbCover(purity=1.5)
