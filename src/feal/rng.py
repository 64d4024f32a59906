"""Random generators seeded by address: by what they are for, never by what was drawn before."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # takes seconds to import, and seeds do without
    import torch


@dataclass(frozen=True, kw_only=True)
class Address:
    """Identify a random draw of a run; the strategy is not part of it, so seeds pair across strategies."""

    seed: int
    purpose: str
    site: str = ""
    round: int = 0
    step: int = 0

    def derive_seed(self) -> int:
        """Return a 63-bit seed: the BLAKE2b hash of the address.

        >>> first = Address(seed=0, purpose="order", site="alder", round=1)
        >>> first.derive_seed() == Address(seed=0, purpose="order", site="alder", round=1).derive_seed()
        True
        >>> first.derive_seed() == Address(seed=1, purpose="order", site="alder", round=1).derive_seed()
        False
        """
        parts = (self.seed, self.purpose, self.site, self.round, self.step)
        digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def generator(self) -> torch.Generator:
        """Return a new generator seeded by this address."""
        import torch

        return torch.Generator().manual_seed(self.derive_seed())

    def seed_torch(self) -> None:
        """Seed torch's global generators, which initial weights and dropout draw from."""
        import torch

        # `torch.manual_seed` formats the call stack for every kind of device that is not there: 1 ms a message.
        torch.default_generator.manual_seed(self.derive_seed())
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(self.derive_seed())
