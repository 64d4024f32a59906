"""Track which sites take part: those that joined, that are up to date, and that are drawn to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from feal.errors import FealError
from feal.federation.coordinator.validation import incompatibility
from feal.federation.protocol import JoinReply
from feal.rng import Address
from feal.rundir.journal import State
from feal.settings import ceil_share


class Participants:
    """The sites of a run.

    Args:
        names: all sites, sorted.
        quorum: how many must reply for a round to count; all of them if None.
        share: of the sites that train in a communication round.
        seed: of the run, which decides who trains.

    Raises:
        FealError: the quorum is larger than the number of sites.
    """

    def __init__(self, names: Sequence[str], *, quorum: int | None, share: float, seed: int) -> None:
        if quorum is not None and quorum > len(names):
            raise FealError(f"A quorum of {quorum} is more than the {len(names)} sites there are: lower it.")
        self.names = list(names)
        self.quorum = quorum or len(names)
        self.joined: dict[str, JoinReply] = {}
        self._share = share
        self._seed = seed

    @property
    def tolerated(self) -> int:
        """How many sites may fail."""
        return len(self.names) - self.quorum

    def absent(self) -> list[str]:
        """List the sites that have not joined."""
        return [site for site in self.names if site not in self.joined]

    def admit(self, replies: Mapping[str, JoinReply], *, labels: Mapping[str, int]) -> dict[str, str]:
        """Add the sites that fit those that joined before; return why the others do not.

        Args:
            replies: of sites that want to join.
            labels: the number of labels that the run has counted at each site so far.
        """
        problems: dict[str, str] = {}
        for site, reply in replies.items():
            first = next(iter(self.joined.values()), reply)
            problem = incompatibility(reply, first=first, counted=labels.get(site, 0))
            if problem:
                problems[site] = problem
            else:
                self.joined[site] = reply
        self.joined = dict(sorted(self.joined.items()))
        return problems

    def up_to_date(self, state: State) -> list[str]:
        """List the sites that have joined and missed no end of a round."""
        return [site for site in self.names if site in self.joined and site not in state.missed]

    def draw(self, *, round_: int, step: int) -> list[str]:
        """Return all sites in the random order in which they are asked to train."""
        address = Address(seed=self._seed, purpose="participation", round=round_, step=step)
        order = torch.randperm(len(self.names), generator=address.generator())
        return [self.names[index] for index in order.tolist()]

    def trainees(self, *, is_last: bool) -> int:
        """Return how many sites train in a communication round; all in the last one of a round."""
        return len(self.names) if is_last else max(1, ceil_share(self._share, len(self.names)))
