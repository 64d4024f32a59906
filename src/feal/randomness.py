"""Randomness by address: a generator depends on what it is for, never on what was drawn before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where in a run a random draw is made; the strategy is no part of it, so seeds pair across strategies."""

    seed: int
    purpose: str
    site: str = ""
    round: int = 0
    step: int = 0

    def number(self) -> int:
        """A 63-bit seed: the BLAKE2b hash of the address.

        >>> first = Address(seed=0, purpose="order", site="alder", round=1)
        >>> first.number() == Address(seed=0, purpose="order", site="alder", round=1).number()
        True
        >>> first.number() == Address(seed=1, purpose="order", site="alder", round=1).number()
        False
        """
        parts = (self.seed, self.purpose, self.site, self.round, self.step)
        digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def generator(self) -> torch.Generator:
        """A generator of its own for this address."""
        return torch.Generator().manual_seed(self.number())

    def seed_torch(self) -> None:
        """Seed torch's global generator, from which initial weights and dropout draw."""
        torch.manual_seed(self.number())
