"""Detect messages that a SuperNode lost, so that they are sent again.

Flower marks a message as delivered when a SuperNode requests it, and waits forever if it is lost afterwards.
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


class RedeliveryPlugin(EventLogWriterPlugin):
    """Delete a lost message from the SuperLink, so that the run sends it again.

    A SuperNode handles one message at a time and requests another when it has none: one that requests a message
    before it answered has lost the previous one. Flower reports every authenticated call to its event log.
    """

    def __init__(self) -> None:
        self._delivered: dict[int, str] = {}

    def compose_log_before_event(
        self, request: Any, context: Any, account_info: object, method_name: str
    ) -> LogEntry:
        if isinstance(request, PullMessagesRequest):
            lost = self._delivered.pop(request.node.node_id, None)
            if lost is not None:
                state: LinkState = context.app.state.linkstate_factory.state()
                state.delete_messages({lost})
        return _NO_ENTRY

    def compose_log_after_event(
        self, request: Any, context: Any, account_info: object, method_name: str, response: Any
    ) -> LogEntry:
        if isinstance(response, PullMessagesResponse) and response.messages_list:
            self._delivered[request.node.node_id] = response.messages_list[0].metadata.message_id
        # Flower requests no parts of a reply that it rejected.
        if isinstance(response, PushMessagesResponse) and response.objects_to_push:
            self._delivered.pop(request.node.node_id, None)
        return _NO_ENTRY

    def write_log(self, log_entry: LogEntry) -> None:
        """Write nothing: only the calls themselves matter."""


def discard_messages(state: LinkState) -> None:
    """Delete every message that was pending when the SuperLink ended: it is unknown which of them arrived."""
    for run in state.get_run_info():
        state.cleanup_run(run.run_id)
