"""Exchange messages with sites: send a request, validate every reply, keep weights on disk.

The coordinator's memory does not grow with the number of sites: it holds one reply at a time, and when weights are
averaged one tensor.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.callbacks import Callback
from feal.federation.coordinator.validation import find_problem, list_unexpected, sanitize
from feal.federation.transport.base import DeliveryFailure, Transport
from feal.fileio import wrap_os_error, write_error
from feal.rundir.layout import RunDirectory
from feal.rundir.records import LeftOut, Unexpected
from feal.tensors import tensor_bytes

AnyReply = TypeVar("AnyReply", bound=messages.Reply)


@dataclass(frozen=True, kw_only=True)
class Replies(Generic[AnyReply]):
    """The outcome of a request."""

    good: Mapping[str, AnyReply]
    """Usable replies by site, in the order of names; their weights are read from disk on access."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites without a usable reply, and why, in a sentence."""
    events: Sequence[LeftOut | Unexpected] = ()
    """Records for the run's log."""

    def __add__(self, other: Replies[AnyReply]) -> Replies[AnyReply]:
        good = {**self.good, **other.good}
        return Replies(
            good={site: good[site] for site in sorted(good)},
            left_out={**self.left_out, **other.left_out},
            events=[*self.events, *other.events],
        )

    def with_behind(self, sites: Sequence[str]) -> Replies[AnyReply]:
        """Add sites that could not be asked because they missed an earlier message."""
        behind = {site: f"Site {site} has not caught up with the run yet." for site in sites}
        return replace(self, left_out={**self.left_out, **behind})


class Exchange:
    """Send requests to sites and validate every reply before it is used."""

    def __init__(
        self,
        *,
        transport: Transport,
        run: RunDirectory,
        callback: Callback,
        timeout: float | None,
        metrics: Sequence[str] = (),
    ) -> None:
        self._transport = transport
        self._run = run
        self._callback = callback
        self._timeout = timeout
        self._metrics = metrics
        self._noted: set[str] = set()

    def ask(
        self,
        request: messages.Request,
        sites: Sequence[str],
        expected: type[AnyReply],
        *,
        doing: str,
        task: str = "",
        classes: int = 0,
    ) -> Replies[AnyReply]:
        """Send a request to sites and gather their replies.

        Args:
            request: what to send; its key is computed here.
            sites: names of the sites.
            expected: type of the replies.
            doing: what the message is for, for the callback.
            task: of the run; empty before it is known.
            classes: number of classes of the run; 0 before it is known.
        """
        request = messages.seal(request)
        good: dict[str, AnyReply] = {}
        left_out: dict[str, str] = {}
        events: list[LeftOut | Unexpected] = []
        for site, data in self._transport.deliver(messages.encode(request), sites, timeout=self._timeout):
            reply, problem = _validate(data, request, site=site, task=task, classes=classes, metrics=self._metrics)
            loss = reply.loss if isinstance(reply, messages.TrainReply) else None
            self._callback.on_reply(round=request.round, step=request.step, site=site, doing=doing, loss=loss)
            place: dict[str, Any] = {"round": request.round, "step": request.step, "message": request.kind}
            if problem:
                left_out[site] = problem
                events.append(LeftOut(**place, site=site, reason=problem))
                continue
            assert isinstance(reply, expected)
            unexpected = [sanitize(name) for name in list_unexpected(reply, request)]
            if unexpected:
                events.append(Unexpected(**place, site=site, names=unexpected))
                self.note_once(
                    f"Site {site} sent fields that were not requested; ignored: {', '.join(unexpected)}."
                )
            good[site] = self._store_weights(reply, request)
        events.sort(key=lambda event: (event.site, event.event))
        return Replies(good={site: good[site] for site in sorted(good)}, left_out=left_out, events=events)

    def require(self, replies: Replies[AnyReply], required: int) -> Replies[AnyReply]:
        """Note which sites are left out; fewer than `required` usable replies end the run.

        Raises:
            FealError: too few sites replied; it says what was wrong with the first of the others.
        """
        problems = [self._transport.explain(site, why) for site, why in sorted(replies.left_out.items())]
        if len(replies.good) < required:
            more = len(problems) - 1
            others = f" ({more} more site{'s' if more > 1 else ''} failed.)" if more > 0 else ""
            raise FealError((problems[0] if problems else "No site can be asked now: resume later.") + others)
        for problem in problems:
            self.note_once(f"Left out: {problem}")
        return replies

    def note_once(self, sentence: str) -> None:
        """Show a note, unless it was shown before."""
        if sentence not in self._noted:
            self._noted.add(sentence)
            self._callback.on_note(sentence)

    def clear(self) -> None:
        """Delete the weights of all replies."""
        shutil.rmtree(self._run.replies, ignore_errors=True)

    def _store_weights(self, reply: AnyReply, request: messages.Request) -> AnyReply:
        """Move a reply's weights from memory to disk; weights that were not requested are dropped."""
        if reply.weights is None:
            return reply
        if request.weights is None or not type(reply).carries_weights:
            return reply.model_copy(update={"weights": None})
        wanted = {name: reply.weights[name] for name in request.weights}
        return reply.model_copy(update={"weights": StoredWeights(self._run.replies / reply.site, wanted)})


class StoredWeights(Mapping[str, torch.Tensor]):
    """Write tensors to a file, and read each when it is accessed."""

    def __init__(self, path: Path, weights: Mapping[str, torch.Tensor]) -> None:
        self._path = path
        self._places: dict[str, tuple[int, torch.dtype, torch.Size]] = {}
        offset = 0
        for name, tensor in weights.items():
            self._places[name] = (offset, tensor.dtype, tensor.shape)
            offset += tensor.numel() * tensor.element_size()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(map(tensor_bytes, weights.values()))
        except OSError as error:
            raise write_error(path, error) from error

    def __getitem__(self, name: str) -> torch.Tensor:
        offset, dtype, shape = self._places[name]
        size = math.prod(shape) * dtype.itemsize
        # Read, not mapped: mapped pages would count as this process's memory.
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                data = bytearray(file.read(size))
        except OSError as error:
            raise wrap_os_error(error) from error
        return torch.frombuffer(data, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _validate(
    data: bytes | DeliveryFailure,
    request: messages.Request,
    *,
    site: str,
    task: str,
    classes: int,
    metrics: Sequence[str],
) -> tuple[messages.Reply | None, str]:
    """Decode a reply; return it and what is wrong with it, or an empty string."""
    if isinstance(data, DeliveryFailure):
        return None, sanitize(data.reason)
    try:
        reply = messages.decode_reply(data)
    except FealError:
        return None, f"Site {site} sent a reply that cannot be read."
    return reply, sanitize(find_problem(reply, request, site=site, task=task, classes=classes, metrics=metrics))
