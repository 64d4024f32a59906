"""The four messages: the only things that cross a site's border, as bytes on every transport.

A message is a safetensors file whose metadata holds its fields as JSON.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from safetensors import SafetensorError
from safetensors.torch import load

from feal.data.resize import Fitting
from feal.errors import ShareableError
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
        """Names of received fields that the message does not have."""
        return self._unexpected


class Request(Message):
    """The fields of every request."""

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
    evaluate: bool = Field(False, description="also evaluate the weights that are sent")


class CloseRound(Request):
    """The end of an active-learning round: its evaluation, and queries for the next one."""

    kind: ClassVar[str] = "close_round"
    carries_weights: ClassVar[bool] = True
    class_counts: Counts | None = Field(
        None, description="labelled samples (or pixels) per class, summed over sites"
    )
    ask: bool = Field(description="select samples and query their labels")


class Labels(Request):
    """A poll for answers that are still pending."""

    kind: ClassVar[str] = "labels"


class Reply(Message):
    """The fields of every reply."""

    key: str = Field(description="key of the request that is answered")
    site: str = Field(description="name of the site")
    status: Literal["ok", "failed"] = Field("ok", description="whether the site could do what was requested")
    reason: str = Field("", description="why not, in a sentence without sample names")
    seconds: dict[str, Seconds] = Field({}, description="time taken, by phase")


class JoinReply(Reply):
    """The facts of a site and its data."""

    kind: ClassVar[str] = "join"
    version: str = Field("", description="software version of the site")
    task: Task = Field("classification", description="classification or segmentation")
    classes: list[str] = Field([], description="names of the classes")
    channels: Number = Field(0, description="channels of an image")
    height: Number = Field(0, description="height of an image")
    width: Number = Field(0, description="width of an image")
    dtype: str = Field("uint8", description="type of a stored pixel, which determines its scale")
    fitting: Fitting | None = Field(None, description="how images were resized to that size, if it is recorded")
    encoder: str = Field("", description="model=frozen: a hash of the encoder's weights")
    features: Number = Field(0, description="model=frozen: how many numbers the encoder gives an image or pixel")
    pool: Number = Field(0, description="number of training samples")
    test: Number = Field(0, description="number of test samples")
    given: Number = Field(0, description="number of training samples whose labels came with the data")
    labelled: Number = Field(0, description="number of labelled samples")
    declined: Number = Field(0, description="number of samples that annotators could not label")


class LabelCounts(Reply):
    """The labels of a site, in replies that report them."""

    labelled: Number = Field(0, description="number of labelled samples")
    class_counts: Counts | None = Field(None, description="labelled samples (or pixels) per class")


class TrainReply(LabelCounts):
    """The result of local training; the number of labels is the weight in the average."""

    kind: ClassVar[str] = "train"
    carries_weights: ClassVar[bool] = True
    loss: float | None = Field(None, description="mean training loss of the last local epoch")
    statistics: Statistics | None = Field(
        None, description="evaluation of the weights that were sent, if requested"
    )


class LabelsReply(LabelCounts):
    """The state of labelling."""

    kind: ClassVar[str] = "labels"
    asked: Number = Field(0, description="number of samples in the last query")
    pending: Number = Field(0, description="of these, samples without an answer")
    declined: Number = Field(0, description="samples of all queries that annotators could not label")
    refused: Number = Field(0, description="answers that were not acceptable")


class CloseRoundReply(LabelsReply):
    """The evaluation of the round's model, and the state of labelling."""

    kind: ClassVar[str] = "close_round"
    statistics: Statistics | None = Field(
        None, description="evaluation of the round's weights; none without test samples"
    )
    local_model: Literal["own", "global", "none"] = Field(
        "none", description="which weights served as the local model: global if the site never trained"
    )
    previous_model: Literal["own", "initial", "none"] = Field(
        "none", description="which weights served as the previous round's: the initial ones in the first selection"
    )
    rejected: Number = Field(0, description="candidates that the strategy skipped for diversity")
    filled: Number = Field(0, description="samples added only because the strategy selected too few")


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
    return _decode(data, REQUESTS)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply; fields that no reply has are left out of it and named by `unexpected`.

    Raises:
        FealError: anything else.
    """
    return _decode(data, REPLIES, drop_unknown=True)


def _decode(data: bytes, kinds: Mapping[str, type[AnyMessage]], *, drop_unknown: bool = False) -> AnyMessage:
    try:
        content = json.loads(read_metadata(data)["message"])
        kind = kinds[content["kind"]]
        fields = dict(content["fields"])
        unknown = sorted(fields.keys() - kind.model_fields) if drop_unknown else []
        known = {name: value for name, value in fields.items() if name not in unknown}
        message = kind(**{**known, "weights": load(data) if content["weights"] else None})
    except (KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise ShareableError(
            f"A message could not be read ({type(error).__name__}): are all versions the same?"
        ) from error
    message._unexpected = tuple(unknown)
    return message
