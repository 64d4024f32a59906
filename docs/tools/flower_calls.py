"""The fields that Flower adds to the messages of a deployment, read from Flower's own message types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor  # type: ignore[import-untyped]
    from google.protobuf.message import Message  # type: ignore[import-untyped]


class Meaning(NamedTuple):
    """What a field is, its purpose and its size."""

    what: str
    purpose: str
    size: str


NUMBER, HASH, UNUSED = "1 number", "64 characters", "empty here"
FIELDS = {
    "public_key": Meaning("the site's public key", "identifies the site", "about 200 bytes"),
    "heartbeat_interval": Meaning("seconds between heartbeats", "detects a site that is offline", NUMBER),
    "node_id": Meaning("number that the coordinator assigned to the site's key", "identifies the caller", NUMBER),
    "success": Meaning(
        "whether the heartbeat was accepted", "a site that is unknown registers again", "yes or no"
    ),
    "run_id": Meaning("number of the run at the coordinator", "identifies the run", NUMBER),
    "message_id": Meaning("hash of a message", "identifies the message", HASH),
    "message_ids": Meaning("messages that are requested", "-", UNUSED),
    "src_node_id": Meaning("number of the sender", "identifies the sender", NUMBER),
    "dst_node_id": Meaning("number of the receiver", "identifies the receiver", NUMBER),
    "reply_to_message_id": Meaning("hash of the request", "assigns a reply to its request", HASH),
    "group_id": Meaning("name of a group of messages", "-", UNUSED),
    "ttl": Meaning("seconds for which a message is valid", "old messages are dropped", NUMBER),
    "message_type": Meaning("always `query`", "Flower requires it", "1 word"),
    "created_at": Meaning("creation time by the sender's clock", "old messages are dropped", "1 time"),
    "src_task_id": Meaning("number of the sender's task", "Flower keeps tasks apart", NUMBER),
    "dst_task_id": Meaning("number of the receiver's task", "Flower keeps tasks apart", NUMBER),
    "content": Meaning("content of the message, which is sent separately as objects", "-", UNUSED),
    "error": Meaning("code and reason of an error in Flower", "reported to the run", "1 number, 1 text"),
    "message_object_trees": Meaning("hashes of a message and its parts", "lists what to fetch", "a few hashes"),
    "clientapp_runtime_list": Meaning("seconds that the reply took", "Flower's own statistics", NUMBER),
    "objects_to_push": Meaning("hashes of missing parts", "avoids sending a part twice", "a few hashes"),
    "object_id": Meaning("hash of a part", "identifies the part", HASH),
    "object_content": Meaning("a part of a message from the tables above", "it is the message", "see above"),
    "object_found": Meaning("whether the part exists", "-", "yes or no"),
    "object_available": Meaning("whether the part has arrived", "otherwise it is requested again", "yes or no"),
    "message_object_id": Meaning("hash of a message that has arrived", "it is not sent again", HASH),
    "session_id": Meaning("name of a transfer", "keeps the parts of two transfers apart", "1 text"),
    "stored": Meaning("whether the part was stored", "otherwise it is sent again", "yes or no"),
    "hash_str": Meaning("hash of the application", "-", HASH),
    "fab.content": Meaning("the application: name and version, no code", "Flower requires it", "about 400 bytes"),
    "verifications": Meaning("signatures of the application", "-", UNUSED),
    "reconnect": Meaning("when to connect again", "-", UNUSED),
    "results": Meaning("what happened to the messages", "-", "1 number per message"),
    "run": Meaning(
        "the coordinator's run: its number, the application's name, version and hash, times and state, "
        "bytes and seconds so far",
        "Flower's own accounting",
        "about 300 bytes",
    ),
}
"""Every field of the calls below; a nested message is represented by its fields."""
NESTED = ("node", "messages_list", "metadata", "fab")
"""Fields that only contain other fields."""
HEADERS = {
    "flwr-public-key": "the site's public key",
    "flwr-timestamp": "the time of the call by the site's clock",
    "flwr-signature": "the signature of that time, which proves that the site has the private key",
    "flwr-package-name": "always `flwr`",
    "flwr-package-version": "version of Flower",
    "flwr-component-name": "always `SuperNode`",
    "user-agent": "name and version of the HTTP library",
}
CALLS = {
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
"""Every call that a SuperNode makes, and the module of its types."""


def describe_calls() -> str:
    """Return the headers, and two tables: what a SuperNode receives by its calls, and what it sends."""
    headers = "; ".join(f"`{name}`, {what}" for name, what in HEADERS.items())
    received, sent = (
        _table({call: getattr(module, f"{call}{kind}") for call, module in CALLS.items()})
        for kind in ("Response", "Request")
    )
    return (
        f"The HTTP headers of every call contain: {headers}.\n\n"
        f"#### To the site\n\n{received}\n#### From the site\n\n{sent}"
    )


def _table(calls: Mapping[str, type[Message]]) -> str:
    calls_of: dict[str, list[str]] = {}
    for call, kind in calls.items():
        for name in dict.fromkeys(_fields(kind.DESCRIPTOR)):
            calls_of.setdefault(name, []).append(f"`{call}`")
    rows = [
        f"| `{name.rpartition('.')[2]}` | {', '.join(found)} | {' | '.join(FIELDS[name])} |"
        for name, found in calls_of.items()
    ]
    return "| field | calls | what it is | purpose | size |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _fields(kind: Descriptor, parent: str = "") -> Iterator[str]:
    for field in kind.fields:
        if field.name in NESTED:
            yield from _fields(field.message_type, f"{field.name}.")
        else:
            yield parent + field.name if parent == "fab." and field.name == "content" else field.name
