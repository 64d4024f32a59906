"""What is shown of what sites say."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation import messages
from feal.federation.engines import Lost
from feal.federation.exchange import Exchange
from feal.federation.progress import Silence
from feal.federation.spool import Spool

EVIL = "Site alder:\n\x1b[2J\x1b]0;title\x07 all is well\u202e" + "!" * 5000


class Talker:
    """An engine whose only site says what it likes."""

    def __init__(self, how: str) -> None:
        self._how = how

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        key = messages.decode_request(request).key
        failed = messages.LabelsReply(key=key, site="alder", status="failed", reason=EVIL)
        yield "alder", Lost(reason=EVIL) if self._how == "lost" else messages.encode(failed)

    def explain(self, site: str, reason: str) -> str:
        return reason


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_a_sites_words_do_nothing_to_a_terminal(how: str, tmp_path: Path) -> None:
    exchange = Exchange(engine=Talker(how), spool=Spool(tmp_path), watcher=Silence(), timeout=None)  # type: ignore[arg-type]
    replies = exchange.ask(messages.Labels(run="x"), ["alder"], messages.LabelsReply, doing="labels")
    said = replies.left_out["alder"]
    assert said.isprintable()
    assert said.startswith("Site alder: [2J ]0;title all is well !!!")
    assert len(said) < 700
    with pytest.raises(FealError) as error:
        exchange.require(replies, 1)
    assert str(error.value) == said
