"""Define what the coordinator reports while a run makes progress."""

from collections.abc import Mapping
from typing import Protocol

from feal.federation.protocol import JoinReply, LabelsReply
from feal.rundir.records import Round


class Callback(Protocol):
    """Receive the progress of a run."""

    def on_join(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None:
        """Handle that the sites joined; the run continues from that round and communication round."""

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        """Handle a site's reply to one message; `doing` says what the message was for."""

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        """Handle a committed communication round."""

    def on_round(self, record: Round) -> None:
        """Handle a committed round."""

    def on_labels(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None:
        """Handle how labelling for a round stands, and whether there are enough labels to continue."""

    def on_note(self, sentence: str) -> None:
        """Handle a sentence for the user."""


class NullCallback(Callback):
    """Ignore the progress of a run; subclasses override what they need."""

    def on_join(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None: ...

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None: ...

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None: ...

    def on_round(self, record: Round) -> None: ...

    def on_labels(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None: ...

    def on_note(self, sentence: str) -> None: ...
