"""Splits into train and test: which rule, where each is kept, whole groups, and torch's own permutation."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.data.locate import locate, name_set_folder
from feal.data.prepare.base import DATASET_SOURCES, DatasetSource, create_source
from feal.data.prepare.datasets.fundus import FedFundus
from feal.data.prepare.duplicates import to_pairs
from feal.data.prepare.image_folder import ImageFolder
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.prepare.split import _permute, find_straddling, group_samples, split_train_test
from feal.data.prepared import open_prepared
from feal.errors import FealError
from tests.data.prepare.conftest import Blobs, Given
from tests.data.prepare.datasets import fakes

HALVES = {f"{number:02}": {"split": "test" if number % 2 else "train"} for number in range(10)}


def _counts(root: Path) -> dict[str, tuple[int, int]]:
    data = open_prepared(root)
    return {
        name: (len(data.site(name).ids("train")), len(data.site(name).ids("test"))) for name in sorted(data.sites)
    }


def test_the_papers_rule_is_the_default_and_a_users_own_split_is_kept() -> None:
    rules = {name: DATASET_SOURCES.get(name).split for name in DATASET_SOURCES.names()}
    assert rules == {
        "fed-camelyon": "shipped",
        "fed-fundus": "8:2",
        "fed-isic": "shipped",
        "fed-polyp": "8:2",
        "fed-prostate": "8:2",
        "octa-500": "8:2",
    }
    assert ImageFolder.split == DatasetSource.split == "shipped"


def test_an_unknown_default_is_refused() -> None:
    class Half(Blobs):
        split = "1:1"

    with pytest.raises(FealError, match="needs the attribute `split`, shipped or 8:2"):
        create_source(Half)


@pytest.mark.parametrize(
    ("name", "write", "shipped", "new"),
    [
        ("fed-fundus", lambda root: fakes.fundus(root, train=5, test=5), (5, 5), (8, 2)),
        ("fed-isic", lambda root: fakes.isic_flamby(root, images=10), (9, 1), (8, 2)),
        ("fed-prostate", fakes.prostate_slices, (3, 3), (5, 1)),
        ("octa-500", lambda root: fakes.octa(root, cases=10), (8, 2), (8, 2)),
    ],
)
def test_both_rules_of_a_download(
    tmp_path: Path, name: str, write: object, shipped: tuple[int, int], new: tuple[int, int]
) -> None:
    download = write(tmp_path / "download")
    dataset = DATASET_SOURCES.get(name)()
    for rule, counts in (("shipped", shipped), ("8:2", new)):
        root = tmp_path / rule.replace(":", "-")
        result = prepare_dataset(dataset, download, root, size=32, split=rule, threads=1)
        assert result.source["split_rule"] == rule
        assert set(_counts(root).values()) == {counts}
        assert not prepare_dataset(dataset, download, root, size=32, split=rule, threads=1).fresh


def test_a_split_csv_gives_the_patches_and_8_2_splits_them_by_patient(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path / "download", patients=6)
    stems = sorted(path.stem for path in tmp_path.glob("download/patches/*/*.png"))
    rows = [[stem, "test" if place % 2 else "train"] for place, stem in enumerate(stems)]
    fakes.write_table(tmp_path / "download" / "split.csv", ("image", "split"), rows)
    dataset = DATASET_SOURCES.get("fed-camelyon")()
    options = {"size": 16, "threads": 1}
    shipped = prepare_dataset(dataset, tmp_path / "download", tmp_path / "shipped", **options)
    assert set(_counts(shipped.root).values()) == {(6, 6)}
    assert any("6 patients, cases or lesions on both sides" in remark for remark in shipped.source["remarks"])
    new = prepare_dataset(dataset, tmp_path / "download", tmp_path / "new", split="8:2", **options)
    assert set(_counts(new.root).values()) == {(10, 2)}
    assert set(new.source["split"].values()) == {"8:2 by patient"}
    _assert_no_patient_in_both_parts(new.root)


def _assert_no_patient_in_both_parts(root: Path) -> None:
    data = open_prepared(root)
    for name in data.sites:
        site = data.site(name)
        tested = set(site.ids("test").tolist())
        parts = ["test" if sample in tested else "train" for sample in site.ids().tolist()]
        assert find_straddling(site.patients().tolist(), parts) == []


def test_no_patient_and_no_copy_is_in_both_parts(dataset: Path) -> None:
    """Where the shipped split has patients and copies on both sides, the new one has none."""
    changes = {
        "alder": {name: {**split, "group": f"p{int(name) // 2}"} for name, split in HALVES.items()},
        "birch": HALVES,
    }
    for number in range(0, 10, 2):
        first, second = (dataset / "birch" / f"{place:02}.png" for place in (number, number + 1))
        second.write_bytes(first.read_bytes())
    options = {"threads": 1}
    shipped = prepare_dataset(Given(**changes), dataset, dataset.parent / "to", **options)
    assert shipped.source["split"] == {"alder": "shipped", "birch": "shipped"}
    assert shipped.source["leaks_found"] == 5
    new = prepare_dataset(Given(**changes), dataset, dataset.parent / "new", split="8:2", **options)
    assert new.source["split"] == {"alder": "8:2 by patient", "birch": "8:2 by likeness"}
    assert new.source["leaks_found"] == 0
    assert _counts(new.root) == {"alder": (8, 2), "birch": (8, 2)}
    _assert_no_patient_in_both_parts(new.root)


def test_what_a_shipped_split_lacks_does_not_matter_to_a_new_one(dataset: Path) -> None:
    half = {"00": {"split": "train"}, "01": {"split": "test"}}
    with pytest.raises(FealError, match="is in no split, but its site is shipped with one"):
        prepare_dataset(Given(alder=half), dataset, dataset.parent / "to", threads=1)
    new = prepare_dataset(Given(alder=half), dataset, dataset.parent / "to", split="8:2", threads=1)
    assert _counts(new.root)["alder"] == (8, 2)


@pytest.mark.parametrize("changes", [{"alder": HALVES, "birch": HALVES}, {}], ids=["shipped", "without"])
def test_another_split_in_the_same_folder_is_refused_in_one_sentence(
    dataset: Path, changes: dict[str, dict[str, object]]
) -> None:
    to = dataset.parent / "to"
    prepare_dataset(Given(**changes), dataset, to, threads=1)
    before = (to / "manifest.json").read_bytes()
    with pytest.raises(FealError) as refused:
        prepare_dataset(Given(**changes), dataset, to, split="8:2", threads=1)
    assert str(refused.value) == (
        f"{to} holds blobs with the split shipped, not 8:2: choose another folder by --to, or add "
        "--split shipped to use this one."
    )
    assert (to / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in dataset.parent.iterdir()) == ["download", "to"]


def test_a_split_that_is_not_the_usual_one_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    download = fakes.fundus(tmp_path / "download")
    for rule, folder in (("8:2", "fed-fundus-32"), ("shipped", "fed-fundus-32-shipped")):
        assert name_set_folder(FedFundus, size=32, split=rule) == folder
        params = {"size": 32, "split": rule, "source": str(download)}
        root = locate("fed-fundus", params=params)
        assert root == tmp_path / "data" / folder
        assert locate("fed-fundus", params={"size": 32, "split": rule}) == root
        assert locate(str(root), params={"split": rule}) == root
    assert locate("fed-fundus", params={"size": 32}) == tmp_path / "data" / "fed-fundus-32"
    with pytest.raises(FealError, match=r"has the split 8:2, not dataset.split=shipped: leave dataset.split out"):
        locate(str(tmp_path / "data" / "fed-fundus-32"), params={"split": "shipped"})
    with pytest.raises(FealError) as absent:
        locate("fed-fundus", params={"size": 64, "split": "shipped"})
    assert "not prepared at 64 pixels with the split shipped" in str(absent.value)
    assert "--from DOWNLOAD --size 64 --split shipped`" in str(absent.value)
    listed = f"dataset.size=32 dataset.split=shipped in {tmp_path / 'data' / 'fed-fundus-32-shipped'}"
    assert listed in str(absent.value)


def test_sets_of_former_versions_count_as_shipped(tmp_path: Path) -> None:
    download = fakes.fundus(tmp_path / "download")
    root = prepare_dataset(FedFundus(), download, tmp_path / "set", size=32, split="shipped", threads=1).root
    manifest = json.loads((root / "manifest.json").read_text())
    del manifest["source"]["split_rule"]
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert locate(str(root), params={"split": "shipped"}) == root


@pytest.mark.parametrize(("samples", "counts"), [(101, (81, 20)), (159, (128, 31)), (400, (320, 80))])
def test_the_papers_counts_of_fundus_images(samples: int, counts: tuple[int, int]) -> None:
    ids = [f"{number:03}" for number in range(samples)]
    _, units = group_samples(ids, [None] * samples, to_pairs([]))
    splits = Counter(split_train_test(units, ids, [True] * samples, site="drishti-gs"))
    assert (splits["train"], splits["test"]) == counts


def test_a_site_without_a_test_part_is_told(dataset: Path) -> None:
    sides = {f"{number:02}": {"split": "train"} for number in range(10)}
    outcome = prepare_dataset(Given(birch=sides), dataset, dataset.parent / "to", threads=1)
    assert outcome.source["remarks"] == ["Site birch has no test sample: nothing is measured there."]
    assert len(open_prepared(outcome.root).site("birch").ids("test")) == 0


SAMPLES = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from("abcdefgh")), st.booleans()), min_size=1, max_size=60
)


@given(SAMPLES, st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)), max_size=15), st.randoms())
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
    target = int(0.2 * int(np.isin(units, fit).sum()))
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


@given(st.integers(0, 300), st.integers(0, 2**63 - 1))
def test_units_are_drawn_as_torch_draws_them(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    assert _permute(count, seed=seed) == torch.randperm(count, generator=generator).tolist()
