"""What the coordinator makes of messages that come back from sites, without a deployment."""

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from feal.federation.engines.contract import Lost
from feal.federation.engines.flower_client import RECORD, packed
from feal.federation.engines.flower_deployment import GRACE, Flight, _content, _is_late, _result
from feal.federation.engines.flower_link import Node
from feal.tensors import buffers


def _reply(content: RecordDict) -> Message:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # else nobody may write a message
    return Message(content, dst_node_id=1, message_type="query")


def test_a_reply_comes_out_as_it_was_packed() -> None:
    assert _result("alder", _reply(packed(b"yes"))) == b"yes"


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"theirs": ConfigRecord({"lost": "x"})}),
        RecordDict({RECORD: ConfigRecord({}), "part-000000": ConfigRecord({"number": 0})}),
        RecordDict({RECORD: ConfigRecord({}), "part-000000": ConfigRecord({"content": "no bytes"})}),
    ],
    ids=["nothing", "another program's", "a part without content", "a part that is text"],
)
def test_a_reply_that_cannot_be_read_is_lost_and_told(content: RecordDict) -> None:
    result = _result("alder", _reply(content))
    assert result == Lost(reason="Site alder sent a reply that cannot be read: is it of the same version?")


@pytest.mark.parametrize("text", ["[" * 10**5, "null", '{"kind": "train"}', '{"kind": 1, "fields": 7}'])
def test_of_fields_that_cannot_be_read_nothing_is_noted(text: str) -> None:
    told = _content(b"".join(buffers({}, metadata={"message": text})))
    assert told == {"kind": "", "fields": {"round": 0, "step": 0}}


def test_a_site_is_late_by_the_time_since_it_was_given_the_message() -> None:
    now, node = time.monotonic(), Node(number=1, since="today")
    long_ago = now - GRACE - 31
    assert _is_late(Flight(site="alder", node=node, since=long_ago), 30.0)
    assert not _is_late(Flight(site="alder", node=node, since=now), 30.0)
    assert not _is_late(Flight(site="alder", node=None, since=long_ago), 30.0), "patience is for who is not there"
    assert not _is_late(Flight(site="alder", node=node, since=long_ago), None)
