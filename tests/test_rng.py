import itertools

import torch

from feal.rng import Address


def test_every_part_of_an_address_counts() -> None:
    values = itertools.product((0, 1), ("order", "select"), ("alder", "birch"), (0, 1), (0, 1))
    numbers = [
        Address(seed=seed, purpose=purpose, site=site, round=round_, step=step).derive_seed()
        for seed, purpose, site, round_, step in values
    ]
    assert len(set(numbers)) == 32
    assert all(0 <= number < 2**63 for number in numbers)


def test_names_that_run_together_are_different_addresses() -> None:
    first = Address(seed=0, purpose="a", site="bc").derive_seed()
    assert first != Address(seed=0, purpose="ab", site="c").derive_seed()


def test_an_address_does_not_depend_on_earlier_draws() -> None:
    address = Address(seed=3, purpose="order")
    torch.rand(10)
    first = torch.rand(5, generator=address.generator())
    torch.rand(10)
    assert torch.equal(first, torch.rand(5, generator=address.generator()))


def test_the_number_is_the_same_on_every_machine() -> None:
    assert Address(seed=0, purpose="order", site="alder", round=1, step=2).derive_seed() == 3096137526573289028
