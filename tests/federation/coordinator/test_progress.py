from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feal.federation.coordinator.progress import has_enough_labels, order_missed
from feal.federation.protocol import LabelsReply
from feal.rundir.journal import RoundEnd
from feal.settings import ceil_share


@given(st.integers(0, 1000), st.integers(0, 10_000))
def test_a_share_is_what_it_is_in_exact_numbers(thousandths: int, number: int) -> None:
    exact = Fraction(thousandths, 1000) * number
    assert ceil_share(thousandths / 1000, number) == -(-exact.numerator // exact.denominator)


@pytest.mark.parametrize(("share", "sites", "enough"), [(0.5, 2, True), (0.6, 2, False), (0.6, 1, True)])
def test_enough_sites_must_have_enough_answers(share: float, sites: int, enough: bool) -> None:
    replies = {
        "alder": LabelsReply(key="k", site="alder", asked=10, pending=5),
        "birch": LabelsReply(key="k", site="birch", asked=10, pending=0),
    }
    assert has_enough_labels(replies, share=share, sites=sites) is enough


def test_ends_of_rounds_come_once_and_in_order() -> None:
    first, second = (RoundEnd(round=number, class_counts=None, ask=True) for number in (1, 2))
    assert order_missed({"alder": (second,), "birch": (first, second)}) == [first, second]
