"""Print docs/privacy.md: every field that leaves or reaches a site, from the message types themselves.

`python docs/tools/privacy_page.py > docs/privacy.md` updates the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from feal.config import load
from feal.federation.closed_form import describe_sums
from feal.federation.protocol import REPLIES, REQUESTS, Message
from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.flower_deployment import SiteStatus
from feal.federation.transport.flower_messages import Envelope, pack_reply
from feal.metrics.statistics import CALIBRATION_BINS, ENERGY_BINS, Statistics
from feal.models.ridge import LAMBDAS, TEMPERATURES
from flower_calls import Meaning, describe_calls

INTRODUCTION = """# What leaves a site

Four kinds of messages cross a site's border, and nothing else: no image, no sample id, no file name, no single
label, no score of a sample. These stay in the site's folder. This page is generated from the message types
(`python docs/tools/privacy_page.py`), and a test fails if the two differ. Another test records every byte between
the sites and the coordinator of a deployed run and searches it for the sites' data.

The messages can still reveal something about a site's data. The operator of the coordinator, and anyone with
access to what it stores, must be trusted with it:

- **Weights** are learned from the site's images. Research has shown that training images can be partly
  reconstructed from updates computed on few samples, and that it is often possible to tell whether a known image
  was used for training. A site with few labels reveals most, and its first communication rounds reveal more than
  later ones. The weights are not protected against this: there is no differential privacy and no secure
  aggregation, so the coordinator sees the weights of each site.
- **A malicious coordinator** can do more: it chooses the configuration and the weights that it sends, and weights
  crafted for this purpose can make a site's reply contain nearly complete images. A site cannot distinguish them
  from honest ones. The coordinator cannot choose code: a site runs only built-in strategies and those named in its
  `site.yaml`.
- **Other sites** receive the average of the weights and the sum of the class counts. With two sites, each can
  compute the other's weights and counts by subtraction; with more, sites that cooperate can do so for the rest.
- **Class counts** state how many labelled samples of each class a site has, and with a budget of one, therefore,
  the new label (`share_class_counts: false` keeps them at the site).
- **Sums over few test samples** reveal much about each of them: with one test sample, the confusion matrix is its
  label and its prediction. The software accepts a small test set; a site should not use one.
- **Numbers of samples** indicate how many patients a hospital has, and numbers of answers how fast its annotators
  work.
- **Names of classes** and of the site are free text and must not contain anything about a patient.
- **Times** of messages, and how long a site takes, indicate its size and its working hours.

- **Sums of features** under `model=frozen` take the place of weights, and reveal more about few samples than an
  average does: see [below](#sums-of-features-modelfrozen).

In the tables, C is the number of classes, and a number is a JSON number of at most 20 bytes or so.
"""
SUMS = """## Sums of features: `model=frozen`

With a frozen encoder, `train` and `close_round` carry these tensors in the field `weights`. F is the number of
features that the encoder gives an image, or a cell of its maps, D is `model.components` and x the D projected
features of a labelled sample (or cell) with a 1 appended; w is its weight and y its classes as 1 and -1.
"""
SUMS_NOTES = f"""\
With `head=linear` or `mlp`, rounds from 1 on carry the head's weights instead, as of any other network. The
losses travel only where leave-one-out chooses the penalty or the temperature: there are {len(LAMBDAS)} x
{len(TEMPERATURES)} of them, which is {len(LAMBDAS) * len(TEMPERATURES)}, and one weight. The names of the
tensors and their shapes are checked on arrival.

What these sums reveal:

- **Sums of few samples reveal much about each of them.** `gram` and `moments` are D x D and D x C numbers.
  The sums of one labelled sample are its features and its class; those of 8 labelled samples determine the
  space that their 8 feature vectors span, and with the classes in `moments` the mean of each class. From a
  round to the next the sums change by the samples that were labelled in between, and these can be isolated
  where few were. Research has shown that features of an image allow a recognisable, if imperfect,
  reconstruction of it.
- **Sums over all images**, `total` and `products`, are of every image of the site, labelled or not, test
  images included. They are the site's mean image features and their covariance; with fewer images than
  features they determine the space that the images' features span. A site with few images should not take
  part in a run with `model=frozen`.
- **Class counts** can be computed from the last row of `moments`, which holds weighted class counts:
  `share_class_counts: false` hides them from no coordinator under `head=ridge`.
- **Other sites** receive the sum of `gram` and `moments` over all sites, where the losses travel. With two
  sites, each learns the other's sums by subtraction; with more, sites that cooperate learn those of the rest.
  With numbers for `model.lambda` and `model.temperature`, sites receive only the head. The projection tells
  all sites the mean and the deviation of the features over all images.
- **The remedy is secure aggregation**: every exchange of `head=ridge` is a plain sum, of which the
  coordinator needs the total alone. It is not there yet: the coordinator sees the sums of each site. It would
  not hide the total, which two sites still subtract their own part from.
"""
DEPLOYMENT = """## Around every message of a deployment

TLS encrypts all of it between a site and the coordinator.
"""
FLOWER = """### What Flower adds

A site's SuperNode calls the coordinator, never the other way round; the coordinator sees its network address.
A site receives no code from the coordinator: the application that Flower distributes is empty, and the site runs
its own installation. The fields of a call, from Flower's own types:
"""
STATUS = """### What the coordinator records for `feal deploy status`

In `site-status.json` of its state folder, for each site:
"""
STATUS_FIELDS = {
    "at": "time of its last reply",
    "version": "software version of the site",
    "message": "kind of the last message",
    "round": "active-learning round of the last message",
    "step": "communication round of the last message",
    "labelled": "number of labelled samples",
    "pending": "number of answers that are still missing",
    "problem": "why its last reply is missing, in the sentence that the site sent",
}
PURPOSES = {
    "protocol": "incompatible versions are refused at once",
    "run": "a site keeps its runs apart",
    "round": "identifies the request",
    "step": "identifies the request",
    "key": "a repeated request gets the stored reply",
    "configuration": "all sites compute the same way",
    "version": "other versions are refused",
    "weights": "the model that the sites train together",
    "class_counts": "class weights of the loss and of the selection",
    "evaluate": "metrics during a round cost time",
    "ask": "the last round asks for no labels",
    "site": "identifies the sender",
    "status": "a site that failed is left out",
    "reason": "tells people what to fix",
    "seconds": "shows people how long a round takes",
    "task": "must be the same at all sites",
    "classes": "must be the same at all sites",
    "channels": "must be the same at all sites, and suit the network",
    "height": "must be the same at all sites, and suit the network",
    "width": "must be the same at all sites, and suit the network",
    "dtype": "an exported model scales images the same way",
    "fitting": "an exported model resizes images the same way",
    "pool": "warns of a budget larger than the pool",
    "test": "shown to people",
    "given": "a run can start from these labels",
    "labelled": "weight of the site in the average; detects lost labels",
    "declined": "explains why a site has fewer labels than requested",
    "loss": "shows people whether training converges",
    "statistics": "metrics of the model over all sites",
    "local_model": "warns of a selection without a local model",
    "previous_model": "warns of a selection without an earlier model",
    "asked": "decides whether there are enough answers to continue",
    "pending": "decides whether there are enough answers to continue",
    "refused": "asks people to check their answers",
    "rejected": "effect of the diversity criterion",
    "filled": "how many samples the strategy lacked",
    "samples": "divisor of the sums",
    "confusion": "accuracy, recall",
    "calibration_count": "calibration error",
    "calibration_confidence": "calibration error",
    "calibration_correct": "calibration error",
    "energy": "domain shift between sites",
    "aleatoric": "mean uncertainty",
    "epistemic": "mean uncertainty",
    "zero_evidence": "warns of a model without evidence",
    "class_evidence": "shows which class lacks evidence",
    "dice": "Dice of each class",
    "dice_count": "Dice of each class",
    "regions": "Dice and HD95 of each region",
    "extra": "metrics that the run adds and the site has agreed to",
    "encoder": "features of different encoders do not fit together",
    "features": "must be the same at all sites",
}
"""What each field is needed for; a name means the same in every message."""
SIZES = {
    "weights": "the model",
    "configuration": "a few kB of text",
    "class_counts": "C numbers",
    "classes": "C texts",
    "fitting": "at most 2 words and 3 numbers",
    "seconds": "1 number per phase",
    "statistics": "see the table below",
    "confusion": "C x C numbers",
    "class_evidence": "C numbers",
    "dice": "C numbers",
    "dice_count": "C numbers",
    "regions": "3 numbers per region",
    "extra": "as the metric declares",
    "energy": f"{ENERGY_BINS} numbers",
    **dict.fromkeys(
        ("calibration_count", "calibration_confidence", "calibration_correct"), f"{CALIBRATION_BINS} numbers"
    ),
}
"""Sizes of the fields that hold more than one value."""
RECORDS = {
    "site": Meaning("name of the receiving site", "a site refuses messages for another site", "1 text"),
    "run": Meaning("random name of the site's folder for the run", "keeps two runs apart", "1 text"),
    "timeout": Meaning("seconds the site may take", "the site ends work that hangs", "1 number"),
    "lost": Meaning(
        "why there is no reply, in a sentence without sample names or paths", "tells people what to fix", "1 text"
    ),
    "mark": Meaning("random letters", "Flower sends equal content only once", "16 characters"),
    "number": Meaning("index of this part of the message", "the receiver joins the parts in order", "1 number"),
    "content": Meaning("a part of a message from the tables above", "it is the message", "see above"),
}
"""Every field of the records that a message is packed into."""
SUM_TENSORS = {
    "count": Meaning("number of all images, or cells of their maps", "mean of the features", "1 number"),
    "total": Meaning("sum of the features of all images", "mean of the features", "F numbers"),
    "products": Meaning(
        "upper triangle of the sum of f f' over the features f of all images",
        "deviations and principal components",
        "F (F + 1) / 2 numbers",
    ),
    "gram": Meaning("sum of w x x' over labelled samples", "the ridge head", "(D + 1) x (D + 1) numbers"),
    "moments": Meaning("sum of w x y' over labelled samples", "the ridge head", "(D + 1) x C numbers"),
    "losses": Meaning(
        "weighted loss of the left-out labelled samples, by penalty and temperature, and the sum of their weights",
        "chooses penalty and temperature",
        f"{len(LAMBDAS) * len(TEMPERATURES) + 1} numbers",
    ),
}
"""Every tensor that a site sends under `model=frozen` in place of weights."""
RETURNED = {
    "projection.mean, projection.scale": ("close_round, round 0", "F numbers each, float32"),
    "projection.components": ("close_round, round 0", "F x D numbers, float32"),
    "gram, moments": ("train, second exchange of a round", "summed over all sites, as above"),
    "last.weight, last.bias": (
        "close_round, and train of the next round",
        "the head: D x C and C numbers, float32",
    ),
    "penalty, temperature": ("as the head", "1 number each"),
}
"""What sites receive under `model=frozen` with `head=ridge`, when, and its size."""


def privacy_page() -> str:
    """Return the whole page as Markdown."""
    parts = [INTRODUCTION]
    for kind, request in REQUESTS.items():
        parts.append(f"## `{kind}`\n\n### To the site\n\n{_message_table(request)}")
        parts.append(f"### From the site\n\n{_message_table(REPLIES[kind])}")
    parts.append(f"## `statistics`: sums over a site's test samples\n\n{_message_table(Statistics)}")
    parts += [SUMS, describe_sums_table(), SUMS_NOTES]
    status = "\n".join(f"| `{name}` | {STATUS_FIELDS[name]} |" for name in SiteStatus.model_fields)
    parts += [
        DEPLOYMENT,
        describe_records(),
        FLOWER,
        describe_calls(),
        f"{STATUS}\n| field | what it is |\n|---|---|\n{status}\n",
    ]
    return "\n".join(parts)


def describe_sums_table() -> str:
    """Return two tables: the tensors that a site sends under `model=frozen`, and those that it receives."""
    rows = "\n".join(
        f"| {exchange} | `{name}` | {' | '.join(SUM_TENSORS[name])} |"
        for (round_, step), exchange in _EXCHANGES.items()
        for name in _list_sums(round_, step)
    )
    received = "\n".join(f"| `{names}` | {when} | {size} |" for names, (when, size) in RETURNED.items())
    return (
        "### From the site\n\n| exchange | tensor | what it is | purpose | size, float64 |\n"
        f"|---|---|---|---|---|\n{rows}\n\n"
        f"### To the site\n\n| tensors | when | size |\n|---|---|---|\n{received}\n"
    )


_EXCHANGES = {
    (0, 0): "round 0",
    (1, 0): "every round, first",
    (1, 1): "every round, second",
}


def _list_sums(round_: int, step: int) -> list[str]:
    """Return the names of the tensors that sites send, as the coordinator checks them."""
    settings = load("recommended", {"transport": "flower"})
    return list(describe_sums(settings, round_=round_, step=step, features=2, classes=2))


def describe_records() -> str:
    """Return two tables: the records that a request is packed into, and those of its reply."""
    request = _record_table(Envelope(site="x", request=b"x").pack())
    reply = _record_table(pack_reply(DeliveryFailure(reason="x")), pack_reply(b"x"))
    return f"### To the site\n\n{request}\n### From the site\n\n{reply}"


def _record_table(*messages: Mapping[str, Any]) -> str:
    names = dict.fromkeys(name for message in messages for record in message.values() for name in record)
    rows = "\n".join(f"| `{name}` | {' | '.join(RECORDS[name])} |" for name in names)
    return f"| field | what it is | purpose | size |\n|---|---|---|---|\n{rows}\n"


def _message_table(type_: type[BaseModel]) -> str:
    rows = "\n".join(
        f"| `{name}` | {field.description} | {PURPOSES[name]} | {SIZES.get(name) or _size(field)} |"
        for name, field in _fields(type_)
    )
    return f"| field | what it is | purpose | size |\n|---|---|---|---|\n{rows}\n"


def _fields(type_: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in type_.model_fields.items():
        if name == "weights" and issubclass(type_, Message) and not type_.carries_weights:
            continue
        yield name, field


def _size(field: FieldInfo) -> str:
    """Return the size of a field that holds one value; the others must be in `SIZES`."""
    kind = _plain_type(field.annotation)
    if get_origin(kind) is Literal:
        return "1 word"
    return {bool: "yes or no", int: "1 number", float: "1 number", str: "1 text"}[kind]


def _plain_type(annotation: Any) -> Any:
    """Return a type without its constraints and without None."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    members = [member for member in get_args(annotation) if member is not NoneType]
    return _plain_type(members[0]) if NoneType in get_args(annotation) else annotation


if __name__ == "__main__":
    print(privacy_page(), end="")
