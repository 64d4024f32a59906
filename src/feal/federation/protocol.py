"""The four messages: the only things that cross a site's border, as bytes on every transport.

A message is a safetensors file whose metadata holds its fields as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load

from feal.data.resize import Fitting
from feal.errors import FealError, ShareableError
from feal.metrics.statistics import Counts, Statistics
from feal.settings import Task
from feal.tensors import encode_tensors, hash_tensors, read_metadata

PROTOCOL = 1
Seconds = Annotated[float, Field(ge=0)]
Number = Annotated[int, Field(ge=0, le=2**53)]


class Message(BaseModel):
    """Fields that travel as JSON, and possibly a model's weights that travel as tensors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    kind: ClassVar[str]
    carries_weights: ClassVar[bool] = False
    weights: Mapping[str, torch.Tensor] | None = Field(None, description="a model's parameters and buffers")
    _unexpected: tuple[str, ...] = PrivateAttr(())

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Names of fields that came along and mean nothing here."""
        return self._unexpected


class Request(Message):
    """What every request carries."""

    protocol: int = Field(PROTOCOL, description="version of these messages")
    run: str = Field(description="run id: a hash of the configuration")
    round: int = Field(0, description="active-learning round")
    step: int = Field(0, description="communication round in it")
    key: str = Field("", description="hash of run, kind, round, step, weights and the other fields")


class Join(Request):
    """The first request to a site, and again at every continuation."""

    kind: ClassVar[str] = "join"
    configuration: dict[str, Any] = Field(description="the effective configuration")
    version: str = Field(description="software version of the coordinator")


class Train(Request):
    """One communication round's local training."""

    kind: ClassVar[str] = "train"
    carries_weights: ClassVar[bool] = True
    class_counts: Counts | None = Field(
        None, description="labelled samples (or pixels) per class, summed over sites"
    )
    evaluate: bool = Field(False, description="also report figures of these weights")


class CloseRound(Request):
    """The end of an active-learning round: figures, and the next labels if asked."""

    kind: ClassVar[str] = "close_round"
    carries_weights: ClassVar[bool] = True
    class_counts: Counts | None = Field(
        None, description="labelled samples (or pixels) per class, summed over sites"
    )
    ask: bool = Field(description="choose samples and ask for their labels")


class Labels(Request):
    """A question for answers that are still pending."""

    kind: ClassVar[str] = "labels"


class Reply(Message):
    """What every reply carries."""

    key: str = Field(description="key of the request that is answered")
    site: str = Field(description="name of the site")
    status: Literal["ok", "failed"] = Field("ok", description="whether the site did what was asked")
    reason: str = Field("", description="why not, in a sentence without sample names")
    seconds: dict[str, Seconds] = Field({}, description="time taken, by phase")


class JoinReply(Reply):
    """What a site is."""

    kind: ClassVar[str] = "join"
    version: str = Field("", description="software version of the site")
    task: Task = Field("classification", description="classification or segmentation")
    classes: list[str] = Field([], description="names of the classes")
    channels: Number = Field(0, description="channels of an image")
    height: Number = Field(0, description="height of an image")
    width: Number = Field(0, description="width of an image")
    dtype: str = Field("uint8", description="how a pixel is stored, which says how it is scaled")
    fitting: Fitting | None = Field(None, description="how pictures were fitted to that size, if it was noted")
    pool: Number = Field(0, description="number of training samples")
    test: Number = Field(0, description="number of test samples")
    given: Number = Field(0, description="number of training samples whose labels came with the data")
    labelled: Number = Field(0, description="number of labelled samples")
    declined: Number = Field(0, description="number of samples that annotators could not label")


class TrainReply(Reply):
    """What a site learned."""

    kind: ClassVar[str] = "train"
    carries_weights: ClassVar[bool] = True
    labelled: Number = Field(0, description="number of labelled samples: the weight in the average")
    class_counts: Counts | None = Field(None, description="labelled samples (or pixels) per class")
    loss: float | None = Field(None, description="mean training loss of the last local epoch")
    statistics: Statistics | None = Field(None, description="figures of the weights that came, if asked for")


class CloseRoundReply(Reply):
    """How the round's model does here, and how labelling stands."""

    kind: ClassVar[str] = "close_round"
    statistics: Statistics | None = Field(
        None, description="figures of the final weights; none without a test part"
    )
    labelled: Number = Field(0, description="number of labelled samples")
    class_counts: Counts | None = Field(None, description="labelled samples (or pixels) per class")
    local_model: Literal["own", "global", "none"] = Field(
        "none", description="whose weights stood in as the local model: global where the site never trained"
    )
    previous_model: Literal["own", "initial", "none"] = Field(
        "none", description="which weights stood for the round before: the initial ones in the first selection"
    )
    asked: Number = Field(0, description="samples of the last question")
    pending: Number = Field(0, description="of these, answers still awaited")
    declined: Number = Field(0, description="samples that annotators could not label, of all questions")
    refused: Number = Field(0, description="answers that were not acceptable")
    rejected: Number = Field(0, description="candidates that the strategy passed over for diversity")
    filled: Number = Field(0, description="samples taken only because the strategy ran short")


class LabelsReply(Reply):
    """How labelling stands."""

    kind: ClassVar[str] = "labels"
    labelled: Number = Field(0, description="number of labelled samples")
    class_counts: Counts | None = Field(None, description="labelled samples (or pixels) per class")
    asked: Number = Field(0, description="samples of the last question")
    pending: Number = Field(0, description="of these, answers still awaited")
    declined: Number = Field(0, description="samples that annotators could not label, of all questions")
    refused: Number = Field(0, description="answers that were not acceptable")


AnyMessage = TypeVar("AnyMessage", bound=Message)
REQUESTS: dict[str, type[Request]] = {type_.kind: type_ for type_ in (Join, Train, CloseRound, Labels)}
REPLIES: dict[str, type[Reply]] = {
    type_.kind: type_ for type_ in (JoinReply, TrainReply, CloseRoundReply, LabelsReply)
}


def seal(request: Request) -> Request:
    """Return the request with its `key`: the same for every site, another for any other request."""
    fields = request.model_dump(exclude={"weights", "key"})
    canonical = json.dumps([request.kind, fields], sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(canonical.encode(), digest_size=16)
    if request.weights is not None:
        digest.update(hash_tensors(request.weights).encode())
    return request.model_copy(update={"key": digest.hexdigest()})


def encode(message: Message) -> bytes:
    """Encode a message as bytes, the same for the same message."""
    content = {
        "kind": message.kind,
        "fields": message.model_dump(exclude={"weights"}),
        "weights": message.weights is not None,
    }
    metadata = {"message": json.dumps(content, allow_nan=False)}
    return b"".join(encode_tensors(message.weights or {}, metadata=metadata))


def decode_request(data: bytes) -> Request:
    """Decode a request; anything else is a `FealError`."""
    kind, fields, weights = _content(data, REQUESTS)
    return _message(kind, fields, weights)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply; fields that no reply has are left out of it and named by `unexpected`.

    Raises:
        FealError: anything else.
    """
    kind, fields, weights = _content(data, REPLIES)
    known = kind.model_fields
    reply = _message(kind, {name: value for name, value in fields.items() if name in known}, weights)
    reply._unexpected = tuple(sorted(name for name in fields if name not in known))
    return reply


def _content(
    data: bytes, kinds: Mapping[str, type[AnyMessage]]
) -> tuple[type[AnyMessage], dict[str, Any], dict[str, torch.Tensor] | None]:
    try:
        content = json.loads(read_metadata(data)["message"])
        return (
            kinds[content["kind"]],
            dict(content["fields"]),
            load(data) if content["weights"] else None,
        )
    except (KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise _unreadable(error) from error


def _message(
    kind: type[AnyMessage], fields: Mapping[str, Any], weights: dict[str, torch.Tensor] | None
) -> AnyMessage:
    try:
        return kind(**{**fields, "weights": weights})
    except (TypeError, ValidationError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> FealError:
    return ShareableError(f"A message could not be read ({type(error).__name__}): are all versions the same?")
