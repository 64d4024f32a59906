"""What the coordinator tells whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from feal.federation.messages import JoinReply, LabelsReply


class Watcher(Protocol):
    """Somebody who is told how a run goes; every method may do nothing."""

    def joined(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None:
        """All sites answered; the run goes on from that round and communication round."""

    def answered(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        """A site has done its part of a message."""

    def stepped(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        """A communication round is committed."""

    def closed(self, record: Mapping[str, Any]) -> None:
        """An active-learning round is committed; `record` is its entry in `summary.json`."""

    def collected(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None:
        """Answers to the question for a round's labels were looked for, and there are enough to go on, or not."""

    def note(self, sentence: str) -> None:
        """Something people should know."""


class Silence(Watcher):
    """Nobody watches."""

    def joined(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None: ...

    def answered(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None: ...

    def stepped(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None: ...

    def closed(self, record: Mapping[str, Any]) -> None: ...

    def collected(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None: ...

    def note(self, sentence: str) -> None: ...
