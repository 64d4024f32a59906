"""What goes around the messages of a deployment, for docs/privacy.md: our own records, and what Flower adds.

Both are written from what is sent: records as they are packed, and Flower's own message types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor  # type: ignore[import-untyped]
    from google.protobuf.message import Message  # type: ignore[import-untyped]


class Meaning(NamedTuple):
    """What a field is, what it is needed for and how large it is."""

    what: str
    why: str
    size: str


NUMBER, HASH, TIME, NOTHING = "1 number", "64 characters", "1 time", "empty here"
FIELDS = {
    "public_key": Meaning("the site's public key", "who the site is", "some 200 bytes"),
    "heartbeat_interval": Meaning("seconds between signs of life", "a site that is gone is noticed", NUMBER),
    "node_id": Meaning("number that the coordinator gave the site's key", "whose call this is", NUMBER),
    "success": Meaning("the sign of life was heard", "a site that is forgotten begins anew", "yes or no"),
    "run_id": Meaning("number of the run on the coordinator", "which run is meant", NUMBER),
    "message_id": Meaning("hash of a message", "which message is meant", HASH),
    "message_ids": Meaning("messages that are asked for", "-", NOTHING),
    "src_node_id": Meaning("number of the sender", "whose message this is", NUMBER),
    "dst_node_id": Meaning("number of the receiver", "whom it is for", NUMBER),
    "reply_to_message_id": Meaning("hash of the message that is answered", "replies find their questions", HASH),
    "group_id": Meaning("a name for several messages", "-", NOTHING),
    "ttl": Meaning("seconds for which a message counts", "old ones are dropped", NUMBER),
    "message_type": Meaning("always `query`", "Flower wants one", "1 word"),
    "created_at": Meaning("when the message was made, by the sender's clock", "old ones are dropped", TIME),
    "src_task_id": Meaning("number of the sender's task", "Flower keeps tasks apart", NUMBER),
    "dst_task_id": Meaning("number of the receiver's task", "Flower keeps tasks apart", NUMBER),
    "content": Meaning("what the message holds: it goes by itself, as objects", "-", NOTHING),
    "error": Meaning("that Flower itself failed, and in which of its ways", "the run is told", "1 number, 1 text"),
    "message_object_trees": Meaning(
        "hashes of a message and of its parts", "what is to be fetched", "a few hashes"
    ),
    "clientapp_runtime_list": Meaning("seconds that the answer took", "Flower's own statistics", NUMBER),
    "objects_to_push": Meaning("hashes of parts that are missing", "nothing is sent twice", "a few hashes"),
    "object_id": Meaning("hash of a part", "which part is meant", HASH),
    "object_content": Meaning("a part of a message: of the tables above", "it is the message", "as above"),
    "object_found": Meaning("there is such a part", "-", "yes or no"),
    "object_available": Meaning("the part has come", "else it is asked for again", "yes or no"),
    "message_object_id": Meaning("hash of a message that has come", "it is not sent again", HASH),
    "session_id": Meaning("name of one sending of parts", "parts of two do not mix", "1 text"),
    "stored": Meaning("the part was kept", "else it is sent again", "yes or no"),
    "hash_str": Meaning("hash of the application", "-", HASH),
    "fab.content": Meaning("the application: a name and a version, no code", "Flower wants one", "some 400 bytes"),
    "verifications": Meaning("who vouches for the application", "-", NOTHING),
    "reconnect": Meaning("when to dial again", "-", NOTHING),
    "results": Meaning("what became of the messages", "-", "a number for each"),
    "run": Meaning(
        "of the coordinator's run: its number, the application's name, version and hash, times and state, "
        "bytes and seconds so far",
        "Flower's own book-keeping",
        "some 300 bytes",
    ),
}
"""Every field of the calls below; messages inside of messages are named by what they hold."""
OPEN = ("node", "messages_list", "metadata", "fab")
"""Fields that only hold other fields."""
HEADERS = {
    "flwr-public-key": "the site's public key",
    "flwr-timestamp": "when the call was made, by the site's clock",
    "flwr-signature": "the key's signature of that time, which shows that the site holds the key",
    "flwr-package-name": "always `flwr`",
    "flwr-package-version": "version of Flower",
    "flwr-component-name": "always `SuperNode`",
    "user-agent": "name and version of the HTTP library",
}


RECORDS = {
    "site": Meaning("name of the site that is meant", "a site refuses what is meant for another", "1 text"),
    "run": Meaning("which of the site's folders is meant: random letters", "two runs do not meet", "1 text"),
    "timeout": Meaning("seconds the site may take", "it frees itself from work that hangs", NUMBER),
    "lost": Meaning(
        "why there is no reply, in a sentence without sample names or paths", "people can mend it", "1 text"
    ),
    "mark": Meaning("random letters", "Flower would carry what is alike once only", "16 characters"),
    "number": Meaning("which part of the message this is", "they are put together again", NUMBER),
    "content": Meaning("a part of the message: of the tables above", "it is the message", "as above"),
}
"""Every field of the records that a message is packed into."""


def envelopes() -> str:
    """Two tables: what a message is packed into on its way to a site, and what its reply is."""
    from feal.federation.engines.contract import Lost
    from feal.federation.engines.flower_client import Question, packed

    asked = _packed(Question(site="x", request=b"x").packed())
    answered = _packed(packed(Lost(reason="x")), packed(b"x"))
    return f"### To the site\n\n{asked}\n### From the site\n\n{answered}"


def _packed(*messages: Mapping[str, Any]) -> str:
    names = dict.fromkeys(name for message in messages for record in message.values() for name in record)
    rows = "\n".join(f"| `{name}` | {' | '.join(RECORDS[name])} |" for name in names)
    return f"| field | what it is | why | size |\n|---|---|---|---|\n{rows}\n"


def carriage() -> str:
    """Two tables: what the calls of a site's SuperNode hold, and what comes back."""
    sent, received = _calls()
    return (
        f"Every call of a site holds, in its head: {_listed(HEADERS)}.\n\n"
        f"#### To the site\n\n{_table(received)}\n#### From the site\n\n{_table(sent)}"
    )


def _calls() -> tuple[dict[str, type[Message]], dict[str, type[Message]]]:
    """What each call that a SuperNode makes sends and gets."""
    from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

    homes = {
        "ActivateNode": fleet_pb2,
        "SendNodeHeartbeat": heartbeat_pb2,
        "PullMessages": fleet_pb2,
        "GetRun": run_pb2,
        "GetFab": fab_pb2,
        "PullObject": message_pb2,
        "ConfirmMessageReceived": message_pb2,
        "PushMessages": fleet_pb2,
        "PushObject": message_pb2,
        "DeactivateNode": fleet_pb2,
    }
    return (
        {name: getattr(home, f"{name}Request") for name, home in homes.items()},
        {name: getattr(home, f"{name}Response") for name, home in homes.items()},
    )


def _table(calls: Mapping[str, type[Message]]) -> str:
    where: dict[str, list[str]] = {}
    for call, kind in calls.items():
        for name in dict.fromkeys(_fields(kind.DESCRIPTOR)):
            where.setdefault(name, []).append(f"`{call}`")
    rows = [
        f"| `{name.rpartition('.')[2]}` | {', '.join(found)} | {' | '.join(FIELDS[name])} |"
        for name, found in where.items()
    ]
    return "| field | in which call | what it is | why | size |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _fields(kind: Descriptor, within: str = "") -> Iterator[str]:
    for field in kind.fields:
        if field.name in OPEN:
            yield from _fields(field.message_type, f"{field.name}.")
        else:
            yield within + field.name if within == "fab." and field.name == "content" else field.name


def _listed(meanings: Mapping[str, str]) -> str:
    return "; ".join(f"`{name}`, {what}" for name, what in meanings.items())
