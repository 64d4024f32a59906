"""What SuperNodes were given and have not answered, as the SuperLink sees it.

Flower marks a message as delivered when a SuperNode asks for it, and waits for ever if it gets lost from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr.common.event_log_plugin import EventLogWriterPlugin
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesResponse,
)
from flwr.supercore.event_log.typing import Actor, Event, LogEntry

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState

_NO_ENTRY = LogEntry(timestamp="", actor=Actor("", "", ""), event=Event("", None, None), status="")


class Deliveries(EventLogWriterPlugin):
    """Takes a lost message out of the SuperLink, so that the run that sent it sends it again.

    A SuperNode has one message at a time and asks for another when it has none: one that asks and has not
    answered yet has lost what it was given. Flower tells its event log of every call, once it knows who calls.
    """

    def __init__(self) -> None:
        self._given: dict[int, str] = {}

    def compose_log_before_event(
        self, request: Any, context: Any, account_info: object, method_name: str
    ) -> LogEntry:
        if isinstance(request, PullMessagesRequest):
            lost = self._given.pop(request.node.node_id, None)
            if lost is not None:
                state: LinkState = context.app.state.linkstate_factory.state()
                state.delete_messages({lost})
        return _NO_ENTRY

    def compose_log_after_event(
        self, request: Any, context: Any, account_info: object, method_name: str, response: Any
    ) -> LogEntry:
        if isinstance(response, PullMessagesResponse) and response.messages_list:
            self._given[request.node.node_id] = response.messages_list[0].metadata.message_id
        # No part of a reply is asked for if it was not taken.
        if isinstance(response, PushMessagesResponse) and response.objects_to_push:
            self._given.pop(request.node.node_id, None)
        return _NO_ENTRY

    def write_log(self, log_entry: LogEntry) -> None:
        """Nothing: it is about the calls themselves."""


def forget_all(state: LinkState) -> None:
    """Take out every message that was under way when the SuperLink ended: which ones arrived, nobody knows."""
    for run in state.get_run_info():
        state.cleanup_run(run.run_id)
