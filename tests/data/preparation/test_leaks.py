"""Leaks are named shortly, however many pictures they have."""

from feal.data.preparation.leaks import NAMED, find_leaks
from feal.data.preparation.likeness import as_pairs


def test_a_leak_of_many_pictures_shows_every_part_first_and_counts_the_rest() -> None:
    count = 1000
    places = [("alder", "train")] * 500 + [("alder", "test")] * 100 + [("birch", "train")] * 400
    (leak,) = find_leaks(
        ids=[f"{number:04}" for number in range(count)],
        sites=[site for site, _ in places],
        splits=[split for _, split in places],
        same=as_pairs([(0, number) for number in range(1, count)]),
        near=as_pairs([]),
    )
    entry = leak.entry()
    assert entry["pictures"] == count
    assert [len(entry[key]) for key in ("samples", "sites", "splits")] == [NAMED] * 3
    assert entry["samples"][:4] == ["0000", "0500", "0600", "0001"]
    assert list(zip(entry["sites"], entry["splits"], strict=True))[:3] == [places[0], places[500], places[600]]
