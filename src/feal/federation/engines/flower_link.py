"""A run's connection to the SuperLink: it takes the part that Flower gives to a ServerApp's process."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
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
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufClientInterceptor, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from feal.deployment.addresses import host_and_port
from feal.deployment.direct import directly
from feal.deployment.places import CoordinatorPlace
from feal.errors import FealError
from feal.federation.engines.flower_client import Question, unpacked
from feal.federation.engines.flower_task import Arrival, claimant, keep_alive, once_more
from feal.files import in_turn
from feal.version import VERSION

YEAR = 365 * 24 * 3600.0
QUERY = "query"
AGAIN_SECONDS = 1.0
SERVER_FAILED = 500
# What Flower wants to know of an app; no code is in it, and no site would run any.
APP = f"""[project]
name = "feal"
version = "{VERSION}"
dependencies = []

[tool.flwr.app]
publisher = "feal"

[tool.flwr.app.components]
serverapp = "feal:none"
clientapp = "feal:none"
"""

T = TypeVar("T")


class Node(NamedTuple):
    """A site's SuperNode that is connected, and since when."""

    number: int
    since: str


@dataclass(frozen=True)
class RunKey:
    """Shows the run key to the SuperLink."""

    secret: str

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers["authorization"] = f"Bearer {self.secret}"
        return call_next(context)


class Directory:
    """What the coordinator's SuperLink knows of sites."""

    def __init__(self, place: CoordinatorPlace) -> None:
        self._place = place
        where = place.whereabouts()
        self.address, self.insecure = where.address, where.insecure
        self.authority = None if self.insecure else place.authority.read_bytes()
        self.secret = place.secret()
        interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="flwr-cli")]
        interceptors.append(RunKey(self.secret))
        with self.straight():
            self.control = ControlHttpClient.from_server_address(
                self.address, self.insecure, self.authority, interceptors, retry_invoker=once_more()
            )

    def straight(self) -> AbstractContextManager[None]:
        """Clients that are made inside reach the SuperLink, which is on this machine, by no proxy."""
        return directly(host_and_port(self.address)[0])

    def registered(self) -> list[NodeInfo]:
        """Every site that was ever let in, connected or not, as Flower knows it."""
        nodes = self.asked(lambda: self.control.ListNodes(ListNodesRequest())).nodes_info
        return [node for node in nodes if node.status != "unregistered"]

    def asked(self, call: Callable[[], T]) -> T:
        """What a call to the SuperLink gives; a `FealError` if it does not answer or does not want to."""
        try:
            return call()
        except httpx.TransportError as error:
            raise self.gone() from error
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            raise FealError(
                f"The coordinator at {self.address} refused a call ({code}): "
                "is it of the same version, and its state folder that of the one at work?"
            ) from error

    def gone(self) -> FealError:
        return FealError(
            f"The coordinator at {self.address} does not answer: start it with `feal deploy coordinator "
            f"{self._place.folder}`, and go on with `feal resume`."
        )

    def close(self) -> None:
        self.control.close()


class Link:
    """One run of Flower's: messages to sites and their replies.

    Short failures of the connection are waited out for `patience` seconds.
    """

    def __init__(self, directory: Directory, *, lock: Path, patience: float) -> None:
        self._directory = directory
        self._patience = patience
        self._hellos: dict[int, str] = {}
        self._claims: dict[str, str] = {}
        self._arriving: dict[str, Arrival] = {}
        # Whatever task is pending is this run's own, or was left by one that was killed in here.
        with in_turn(lock), directory.straight():
            started = directory.asked(lambda: directory.control.StartRun(StartRunRequest(fab=Fab(content=_app()))))
            token = directory.asked(lambda: self._claimed(started.run_id))
            self._grid = _Grid(directory.address, directory.insecure, directory.authority, token=token)
            self._client = self._grid.client
        self._beats = keep_alive(self._client)
        task = self._patiently(lambda: self._client.PullTaskInput(PullTaskInputRequest()))
        self._run = run_from_proto(task.run)
        self._grid.set_run(self._run)
        # What messages of this process say of themselves.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id

    def nodes(self) -> Mapping[str, Node]:
        """The sites that are connected, by the name that the coordinator registered their keys under."""
        nodes = self._patiently(lambda: list(self._grid.get_nodes()))
        named = {node.name or self._claim(node): Node(node.node_id, node.last_activated_at) for node in nodes}
        return {name: node for name, node in named.items() if name}

    def _claim(self, node: NodeInfo) -> str:
        """What a node without a key calls itself once it is asked: only a trial in plain text has such nodes."""
        if not self._directory.insecure:
            return ""
        if node.node_id not in self._hellos:
            self._hellos[node.node_id] = self.push(Node(node.node_id, ""), Question(site="", request=b""))
        number = self._hellos[node.node_id]
        for _, reply in self.pull([number] if number not in self._claims else []):
            if reply is None or reply.has_error():
                del self._hellos[node.node_id]  # it is asked again at the next look
                return ""
            name = unpacked(reply.content)
            self._claims[number] = name.decode() if isinstance(name, bytes) else ""
        return self._claims.get(number, "")

    def push(self, node: Node, question: Question) -> str:
        """Give a site a message; its number is what the reply will be known by."""

        def push() -> str:
            # Another message at every try: Flower takes none again that it knows the beginning of.
            message = Message(question.packed(), dst_node_id=node.number, message_type=QUERY, ttl=YEAR)
            [number] = self._grid.push_messages([message])
            return number

        return self._patiently(push)

    def pull(self, numbers: Collection[str]) -> list[tuple[str, Message | None]]:
        """The replies that have come to these messages; None for one that got lost on its way."""
        unheard = [number for number in numbers if number not in self._arriving]
        if unheard:
            asked = PullAppMessagesRequest(message_ids=unheard)
            announced = self._patiently(lambda: self._client.PullMessages(asked))
            for reply, tree in zip(announced.messages_list, announced.message_object_trees, strict=True):
                arrival = Arrival(self._client, tree, node=self._grid.node, run=self._run.run_id)
                self._arriving[reply.metadata.reply_to_message_id] = arrival
        landed: list[tuple[str, Message | None]] = []
        for number in [number for number in numbers if number in self._arriving]:
            try:
                message = self._patiently(self._arriving[number].message)
            except ObjectPullError:
                landed.append((number, None))
            else:
                landed += [(number, message)] if message is not None else []
        for number, _ in landed:
            self.forget(number)
        return landed

    def forget(self, number: str) -> None:
        """Have done with a message, whatever has come of its reply."""
        self._arriving.pop(number, None)

    def close(self) -> None:
        """Tell the SuperLink that the run is over."""
        self._beats.stop()
        with suppress(httpx.HTTPError):  # it ends the run by itself, once nothing is heard of it
            self._client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))
        self._grid.close()

    def _claimed(self, run: int) -> str:
        directory = self._directory
        with RuntimeHttpClient.from_server_address(
            directory.address,
            directory.insecure,
            directory.authority,
            claimant(directory.secret),
            retry_invoker=once_more(),
        ) as client:
            while True:
                task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
                if not task.token:
                    raise FealError("The coordinator started no run for this one: try again.")
                if task.task.run_id == run:
                    return str(task.token)

    def _patiently(self, call: Callable[[], T]) -> T:
        end = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except (httpx.TransportError, ObjectPushError) as error:
                if time.monotonic() >= end:
                    raise self._directory.gone() from error
            except httpx.HTTPStatusError as error:
                code = error.response.status_code
                if code < SERVER_FAILED or time.monotonic() >= end:
                    raise FealError(
                        f"The coordinator at {self._directory.address} has ended this run ({code}): "
                        "go on with `feal resume`."
                    ) from error
            time.sleep(AGAIN_SECONDS)


class _Grid(HttpGrid):
    """Flower's grid that tells a failure: it would try for ever, and interrupt this process when it is refused."""

    def __init__(self, address: str, insecure: bool, authority: bytes | None, *, token: str) -> None:
        super().__init__(address, insecure, authority, token=token)
        self._retry_invoker = once_more()

    @property
    def client(self) -> RuntimeHttpClient:
        return self._runtime_client


def _app() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        # A date of its own would make another app of it every day.
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), APP)
    return content.getvalue()
