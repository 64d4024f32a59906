"""Groups stay whole, a fifth is tested, and order never matters."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feal.data.preparation.likeness import as_pairs
from feal.data.preparation.splitting import both_sides, grouped, split

SITES = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from("abcdefgh")), st.booleans()), min_size=1, max_size=60
)


@given(SITES, st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=15), st.randoms())
def test_whole_groups_a_fifth_and_any_order(
    samples: list[tuple[str | None, bool]], pairs: list[tuple[int, int]], shuffle: object
) -> None:
    count = len(samples)
    ids = [f"s{number:02}" for number in range(count)]
    groups, labelled = [group for group, _ in samples], [known for _, known in samples]
    alike = as_pairs([(min(pair), max(pair)) for pair in pairs if max(pair) < count and pair[0] != pair[1]])
    patients, units = grouped(ids, groups, alike)
    sides = split(units, ids, labelled, site="alder")

    assert both_sides(patients, sides) == []
    assert all(group is None or group == patient for group, patient in zip(groups, patients, strict=True))
    for one, other in alike.tolist():
        if groups[one] is None and groups[other] is None:
            assert sides[one] == sides[other]
    assert all(known or side == "train" for known, side in zip(labelled, sides, strict=True))
    fit = [unit for unit in set(units.tolist()) if all(labelled[n] for n in np.flatnonzero(units == unit))]
    largest = max((int((units == unit).sum()) for unit in fit), default=0)
    target = round(0.2 * int(np.isin(units, fit).sum()))
    assert abs(sides.count("test") - target) <= largest
    assert "train" in sides

    order = list(range(count))
    shuffle.shuffle(order)
    place = {number: at for at, number in enumerate(order)}
    moved = as_pairs([tuple(sorted((place[a], place[b]))) for a, b in alike.tolist()])
    names, again = grouped([ids[n] for n in order], [groups[n] for n in order], moved)
    assert names == [patients[n] for n in order]
    assert split(again, [ids[n] for n in order], [labelled[n] for n in order], site="alder") == [
        sides[n] for n in order
    ]


def test_single_samples_split_exactly_and_differently_by_site() -> None:
    ids = [f"{number:03}" for number in range(100)]
    _, units = grouped(ids, [None] * 100, as_pairs([]))
    one, other = (split(units, ids, [True] * 100, site=site) for site in ("alder", "birch"))
    assert one.count("test") == other.count("test") == 20
    assert one != other


def test_two_patients_give_one_to_each_side() -> None:
    ids = list("uvwxyz")
    _, units = grouped(ids, ["p"] * 4 + ["q"] * 2, as_pairs([]))
    assert split(units, ids, [True] * 6, site="alder") == ["train"] * 4 + ["test"] * 2
    assert split(np.zeros(6), ids, [True] * 6, site="alder") == ["train"] * 6
