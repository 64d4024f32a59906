"""Patients: kept on one side, some photographed often, some unclear."""

from collections import Counter

import pytest

from feal.data.synthetic.base import Case, draw_cohort


def _cases(split: str = "train", count: int = 600, seed: int = 0, given: float = 0.0) -> list[Case]:
    return draw_cohort(("lesions", seed), site="alder", split=split, count=count, given=given)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_more_cases_do_not_change_those_before(count: int) -> None:
    assert _cases(count=count) == _cases(count=300)[:count]


def test_seeds_and_sites_differ() -> None:
    assert [case.kind for case in _cases()] != [case.kind for case in _cases(seed=1)]
    elsewhere = draw_cohort(("lesions", 0), site="birch", split="train", count=600, given=0.0)
    assert [case.kind for case in _cases()] != [case.kind for case in elsewhere]


def test_patients_never_straddle_the_split() -> None:
    assert not {case.patient for case in _cases()} & {case.patient for case in _cases("test")}


def test_kinds_have_their_shares() -> None:
    kinds = Counter(case.kind for case in _cases(count=3000))
    assert 0.10 < kinds["ambiguous"] / 3000 < 0.2
    assert 0.2 < kinds["redundant"] / 3000 < 0.4
    assert kinds["easy"] > kinds["redundant"]


def test_redundant_pictures_are_of_a_patient_who_is_there() -> None:
    seen: set[str] = set()
    for case in _cases():
        assert (case.kind == "redundant") == (case.patient in seen)
        seen.add(case.patient)


def test_the_test_part_has_no_repeats() -> None:
    cases = _cases("test", count=200)
    assert len({case.patient for case in cases}) == 200
    assert {case.kind for case in cases} == {"easy", "ambiguous"}


def test_ranks_fill_the_unit_interval_evenly() -> None:
    ranks = sorted(case.rank for case in _cases("test", count=100))
    assert all(abs(rank - index / 100) < 0.03 for index, rank in enumerate(ranks))


def test_given_labels_are_a_share_of_the_training_part() -> None:
    assert not any(case.initial for case in _cases())
    assert 0.25 < sum(case.initial for case in _cases(given=0.3)) / 600 < 0.35
    assert not any(case.initial for case in _cases("test", given=1.0))
    assert all(case.initial for case in _cases(given=1.0))
