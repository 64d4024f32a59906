"""A site's end of a message: what the SuperNode received goes to the hand, and the hand's reply back.

Flower would start a process for every message and run in it whatever code the coordinator sent. Here the
code is what the site has installed itself, and nothing that comes with a message is run.
"""

from __future__ import annotations

from typing import cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from feal.federation.deployed.hand import Hand
from feal.federation.engines.contract import Lost
from feal.federation.engines.flower_client import RECORD, packed
from feal.federation.engines.flower_task import claimant, keep_alive


class Worker:
    """Takes messages from the SuperNode on this machine at `address` and answers them."""

    def __init__(self, name: str, *, address: str, secret: str, hand: Hand) -> None:
        self._name = name
        self._address = address
        self._hand = hand
        self._client = self._connected(claimant(secret))

    def work(self) -> str:
        """Answer a message if there is one, and say who asked what; empty if there was none.

        Raises:
            httpx.HTTPError: the SuperNode is not there.
        """
        claimed = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
        if not claimed.token:
            return ""
        interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")]
        with self._connected([*interceptors, RuntimeTokenHttpInterceptor(claimed.token)]) as client:
            beats = keep_alive(client)
            try:
                message, context, _, _ = pull_task_input(client)
                said, reply = self._answered(message)
                push_message(client, reply, context)
                push_task_output(client, None, SubStatus.COMPLETED, "")
            finally:
                beats.stop()
        return said

    def close(self) -> None:
        self._client.close()

    def _answered(self, message: Message) -> tuple[str, Message]:
        asked = cast(ConfigRecord, message.content[RECORD])
        reply = self._reply(asked)
        said = reply.reason if isinstance(reply, Lost) else "Answered a message."
        return said, Message(RecordDict({RECORD: packed(reply)}), reply_to=message)

    def _reply(self, asked: ConfigRecord) -> bytes | Lost:
        site = str(asked["site"])
        if not site:
            return self._name.encode()
        if site != self._name:
            return Lost(
                reason=f"The key of site {site} is used by one that calls itself {self._name}: "
                "give each its own key, and its own name in site.yaml."
            )
        timeout = cast(float, asked["timeout"]) or None
        return self._hand.answer(str(asked["run"]), cast(bytes, asked["request"]), timeout=timeout)

    def _connected(self, interceptors: list[ProtobufClientInterceptor]) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            self._address, insecure=True, root_certificates=None, interceptors=interceptors
        )
