"""Connect a run to the SuperLink, in the role of Flower's ServerApp process."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TypeVar

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import ListNodesRequest, StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufClientInterceptor, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid

from feal import __version__
from feal.errors import FealError
from feal.federation.transport.deploy.config import CoordinatorConfig, bypass_proxy, parse_address
from feal.federation.transport.flower_messages import (
    MESSAGE_TTL_SECONDS,
    MESSAGE_TYPE,
    Envelope,
    IncomingMessage,
    adopt_task,
    make_claim_interceptors,
    make_retry_invoker,
    start_heartbeat,
    unpack_reply,
)
from feal.fileio import lock_file

RETRY_SECONDS = 1.0
# The description that Flower requires of an app; it contains no code, and sites would not run any.
APP_MANIFEST = f"""[project]
name = "feal"
version = "{__version__}"
dependencies = []

[tool.flwr.app]
publisher = "feal"

[tool.flwr.app.components]
serverapp = "feal:none"
clientapp = "feal:none"
"""

_T = TypeVar("_T")


class ConnectedNode(NamedTuple):
    """A connected SuperNode: its number, and when it connected."""

    number: int
    since: str


@dataclass(frozen=True)
class RunKeyInterceptor:
    """Add the run key to every call to the SuperLink."""

    secret: str

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["authorization"] = f"Bearer {self.secret}"
        return call_next(context)


class SuperLinkClient:
    """A client of the coordinator's SuperLink on this machine."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        endpoint = config.read_endpoint()
        self.address, self.insecure = endpoint.address, endpoint.insecure
        self.authority = None if self.insecure else config.authority.read_bytes()
        self.secret = config.read_run_key()
        interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-cli")]
        interceptors.append(RunKeyInterceptor(self.secret))
        with self.without_proxy():
            self.control = ControlHttpClient.from_server_address(
                self.address, self.insecure, self.authority, interceptors, retry_invoker=make_retry_invoker()
            )

    def without_proxy(self) -> AbstractContextManager[None]:
        """Bypass the proxy for clients that are created inside the block."""
        return bypass_proxy(parse_address(self.address)[0])

    def list_nodes(self) -> list[NodeInfo]:
        """Return Flower's record of every registered site, connected or not."""
        nodes = self.call(lambda: self.control.ListNodes(ListNodesRequest())).nodes_info
        return [node for node in nodes if node.status != "unregistered"]

    def call(self, function: Callable[[], _T]) -> _T:
        """Call the SuperLink and return its answer; raise a `FealError` if it does not answer or refuses."""
        try:
            return function()
        except httpx.TransportError as error:
            raise self.make_unreachable_error() from error
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            raise FealError(
                f"The coordinator at {self.address} refused a call ({code}): "
                "check that it is the same version and that its state folder belongs to the running coordinator."
            ) from error

    def make_unreachable_error(self) -> FealError:
        """Return the error for a SuperLink that does not answer."""
        return FealError(
            f"The coordinator at {self.address} does not answer: start it with `feal deploy coordinator "
            f"{self._config.folder}`, and continue with `feal resume`."
        )

    def close(self) -> None:
        self.control.close()


class FlowerRun:
    """A run in Flower's sense: messages to sites and their replies.

    Failed calls are retried for `patience` seconds.
    """

    def __init__(self, superlink: SuperLinkClient, *, lock: Path, patience: float) -> None:
        self._superlink = superlink
        self._patience = patience
        self._name_requests: dict[int, str] = {}
        self._claimed_names: dict[str, str] = {}
        self._incoming: dict[str, IncomingMessage] = {}
        # Under the lock, a pending task is either this run's or was left behind by a killed process.
        with lock_file(lock), superlink.without_proxy():
            started = superlink.call(
                lambda: superlink.control.StartRun(StartRunRequest(fab=Fab(content=_build_app())))
            )
            token = superlink.call(lambda: self._claim_task(started.run_id))
            self._grid = _Grid(superlink.address, superlink.insecure, superlink.authority, token=token)
            self._client = self._grid.client
        self._heartbeat = start_heartbeat(self._client)
        task = self._retry(lambda: adopt_task(self._client))
        self._run = run_from_proto(task.run)
        self._grid.set_run(self._run)

    def list_connected_nodes(self) -> Mapping[str, ConnectedNode]:
        """Return the connected sites by the name under which the coordinator registered their keys."""
        nodes = self._retry(lambda: list(self._grid.get_nodes()))
        named = {
            node.name or self._request_name(node): ConnectedNode(node.node_id, node.last_activated_at)
            for node in nodes
        }
        return {name: node for name, node in named.items() if name}

    def _request_name(self, node: NodeInfo) -> str:
        """Ask a node without a key for its name; such nodes exist only in a plain-text trial."""
        if not self._superlink.insecure:
            return ""
        if node.node_id not in self._name_requests:
            self._name_requests[node.node_id] = self.push(
                ConnectedNode(node.node_id, ""), Envelope(site="", request=b"")
            )
        number = self._name_requests[node.node_id]
        for _, reply in self.pull([number] if number not in self._claimed_names else []):
            if reply is None or reply.has_error():
                del self._name_requests[node.node_id]  # ask again with the next refresh
                return ""
            name = unpack_reply(reply.content)
            self._claimed_names[number] = name.decode() if isinstance(name, bytes) else ""
        return self._claimed_names.get(number, "")

    def push(self, node: ConnectedNode, envelope: Envelope) -> str:
        """Send a message to a site and return its number, by which the reply is identified."""

        def push() -> str:
            # A new message for every attempt: Flower rejects one that it has received in part.
            message = Message(
                envelope.pack(), dst_node_id=node.number, message_type=MESSAGE_TYPE, ttl=MESSAGE_TTL_SECONDS
            )
            [number] = self._grid.push_messages([message])
            return number

        return self._retry(push)

    def pull(self, numbers: Collection[str]) -> list[tuple[str, Message | None]]:
        """Return the replies that have arrived for these messages; None for one that was lost on the way."""
        unannounced = [number for number in numbers if number not in self._incoming]
        if unannounced:
            asked = PullAppMessagesRequest(message_ids=unannounced)
            announced = self._retry(lambda: self._client.PullMessages(asked))
            for reply, tree in zip(announced.messages_list, announced.message_object_trees, strict=True):
                incoming = IncomingMessage(self._client, tree, node=self._grid.node, run=self._run.run_id)
                self._incoming[reply.metadata.reply_to_message_id] = incoming
        received: list[tuple[str, Message | None]] = []
        for number in [number for number in numbers if number in self._incoming]:
            try:
                message = self._retry(self._incoming[number].receive)
            except ObjectPullError:
                received.append((number, None))
            else:
                received += [(number, message)] if message is not None else []
        for number, _ in received:
            self.forget(number)
        return received

    def forget(self, number: str) -> None:
        """Drop a message and what has arrived of its reply."""
        self._incoming.pop(number, None)

    def close(self) -> None:
        """End the run at the SuperLink."""
        self._heartbeat.stop()
        with suppress(httpx.HTTPError):  # the SuperLink ends a run without heartbeats itself
            self._client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))
        self._grid.close()

    def _claim_task(self, run: int) -> str:
        superlink = self._superlink
        with RuntimeHttpClient.from_server_address(
            superlink.address,
            superlink.insecure,
            superlink.authority,
            make_claim_interceptors(superlink.secret),
            retry_invoker=make_retry_invoker(),
        ) as client:
            while True:
                task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
                if not task.token:
                    raise FealError("The coordinator did not start a run: try again.")
                if task.task.run_id == run:
                    return str(task.token)

    def _retry(self, function: Callable[[], _T]) -> _T:
        end = time.monotonic() + self._patience
        while True:
            try:
                return function()
            except (httpx.TransportError, ObjectPushError) as error:
                if time.monotonic() >= end:
                    raise self._superlink.make_unreachable_error() from error
            except httpx.HTTPStatusError as error:
                code = error.response.status_code
                if code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() >= end:
                    raise FealError(
                        f"The coordinator at {self._superlink.address} has ended this run ({code}): "
                        "continue with `feal resume`."
                    ) from error
            time.sleep(RETRY_SECONDS)


class _Grid(HttpGrid):
    """Flower's grid, with failures raised: it would retry forever, and interrupt this process when refused."""

    def __init__(self, address: str, insecure: bool, authority: bytes | None, *, token: str) -> None:
        super().__init__(address, insecure, authority, token=token)
        self._retry_invoker = make_retry_invoker()

    @property
    def client(self) -> RuntimeHttpClient:
        return self._runtime_client


def _build_app() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # With the current date it would be a different app every day.
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), APP_MANIFEST)
    return content.getvalue()
