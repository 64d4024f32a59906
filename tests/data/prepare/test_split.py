"""What only shows when all samples are seen together: copies over sites, and sites without a test part."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from feal.data import open_prepared
from feal.data.prepare.duplicates import to_pairs
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.prepare.split import find_straddling, group_samples, split_train_test
from tests.data.prepare.conftest import Blobs, Given


def _copied(path: Path, to: Path, *, brighter: int = 0) -> None:
    """The picture again, perhaps with another light, so that it is alike and not the same."""
    pixels = np.asarray(Image.open(path)).astype(int) + brighter
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(to)


@pytest.mark.parametrize("brighter", [0, 3])
def test_copies_at_another_site_do_not_tear_a_group(dataset: Path, brighter: int) -> None:
    for number in range(4):
        original = dataset / "alder" / f"{number:02}.png"
        shutil.copy(original, dataset / "birch" / f"{number:02}.png")
        _copied(original, dataset / "birch" / f"{number + 4:02}.png", brighter=brighter)
        if brighter:
            shutil.copy(dataset / "birch" / f"{number + 4:02}.png", dataset / "alder" / f"{number + 4:02}.png")
    site = open_prepared(prepare_dataset(Blobs(), dataset, dataset.parent / "to", processes=1).root).site("birch")
    patients = dict(zip(site.ids().tolist(), site.patients().tolist(), strict=True))
    tested = set(site.ids("test").tolist())
    assert tested
    for number in range(4):
        one, other = f"{number:02}", f"{number + 4:02}"
        assert patients[one] == patients[other] == one
        assert (one in tested) == (other in tested)


def test_named_patients_between_do_not_tear_a_group(dataset: Path) -> None:
    for name in ("01", "02"):
        shutil.copy(dataset / "alder" / "00.png", dataset / "alder" / f"{name}.png")
    root = prepare_dataset(Given(alder={"00": {"group": "ann"}}), dataset, dataset.parent / "to", processes=1).root
    assert open_prepared(root).site("alder").patients()[:3].tolist() == ["ann", "01", "01"]


def test_a_site_without_a_test_part_is_told(dataset: Path) -> None:
    sides = {f"{number:02}": {"split": "train"} for number in range(10)}
    outcome = prepare_dataset(Given(birch=sides), dataset, dataset.parent / "to", processes=1)
    assert outcome.source["remarks"] == ["Site birch has no test sample: nothing is measured there."]
    assert len(open_prepared(outcome.root).site("birch").ids("test")) == 0


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
    alike = to_pairs([(min(pair), max(pair)) for pair in pairs if max(pair) < count and pair[0] != pair[1]])
    patients, units = group_samples(ids, groups, alike)
    sides = split_train_test(units, ids, labelled, site="alder")

    assert find_straddling(patients, sides) == []
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
    moved = to_pairs([tuple(sorted((place[a], place[b]))) for a, b in alike.tolist()])
    names, again = group_samples([ids[n] for n in order], [groups[n] for n in order], moved)
    assert names == [patients[n] for n in order]
    assert split_train_test(again, [ids[n] for n in order], [labelled[n] for n in order], site="alder") == [
        sides[n] for n in order
    ]


def test_single_samples_split_exactly_and_differently_by_site() -> None:
    ids = [f"{number:03}" for number in range(100)]
    _, units = group_samples(ids, [None] * 100, to_pairs([]))
    one, other = (split_train_test(units, ids, [True] * 100, site=site) for site in ("alder", "birch"))
    assert one.count("test") == other.count("test") == 20
    assert one != other


def test_two_patients_give_one_to_each_side() -> None:
    ids = list("uvwxyz")
    _, units = group_samples(ids, ["p"] * 4 + ["q"] * 2, to_pairs([]))
    assert split_train_test(units, ids, [True] * 6, site="alder") == ["train"] * 4 + ["test"] * 2
    assert split_train_test(np.zeros(6), ids, [True] * 6, site="alder") == ["train"] * 6
