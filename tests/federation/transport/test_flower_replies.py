"""Replies of sites as the coordinator unpacks them, without a deployment."""

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.flower_deployment import (
    TIMEOUT_MARGIN_SECONDS,
    PendingMessage,
    _decode_header,
    _is_late,
    _unpack_result,
)
from feal.federation.transport.flower_link import ConnectedNode
from feal.federation.transport.flower_messages import RECORD, pack_reply
from feal.tensors import encode_tensors


def _reply(content: RecordDict) -> Message:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = (
        1  # Flower requires them to create a message
    )
    return Message(content, dst_node_id=1, message_type="query")


def test_a_reply_is_unpacked_unchanged() -> None:
    assert _unpack_result("alder", _reply(pack_reply(b"yes"))) == b"yes"


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
def test_an_unreadable_reply_is_a_delivery_failure(content: RecordDict) -> None:
    result = _unpack_result("alder", _reply(content))
    assert result == DeliveryFailure(
        reason="Site alder sent an unreadable reply: install the same version of feal everywhere."
    )


@pytest.mark.parametrize("text", ["[" * 10**5, "null", '{"kind": "train"}', '{"kind": 1, "fields": 7}'])
def test_unreadable_fields_are_ignored(text: str) -> None:
    told = _decode_header(b"".join(encode_tensors({}, metadata={"message": text})))
    assert told == {"kind": "", "fields": {"round": 0, "step": 0}}


def test_the_timeout_starts_when_the_site_receives_the_message() -> None:
    now, node = time.monotonic(), ConnectedNode(number=1, since="today")
    long_ago = now - TIMEOUT_MARGIN_SECONDS - 31
    assert _is_late(PendingMessage(site="alder", node=node, since=long_ago), 30.0)
    assert not _is_late(PendingMessage(site="alder", node=node, since=now), 30.0)
    assert not _is_late(PendingMessage(site="alder", node=None, since=long_ago), 30.0), (
        "patience applies to disconnected sites"
    )
    assert not _is_late(PendingMessage(site="alder", node=node, since=long_ago), None)
