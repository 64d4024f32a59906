"""docs/privacy.md: every field that crosses a site's border, written from the message types themselves.

`python -m feal.federation.privacy > docs/privacy.md` brings the page up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from feal.deployment.seen import Heard
from feal.federation.carriage import carriage, envelopes
from feal.federation.messages import REPLIES, REQUESTS, Message
from feal.federation.statistics import CALIBRATION_BINS, ENERGY_BINS, Statistics

_HEAD = """# What leaves a site

Four kinds of messages cross a site's border, and nothing else does: no image, no sample id, no file name, no
single label, no score of a sample. These stay in the site's own folder. The page is written from the message
types (`python -m feal.federation.privacy`), and a test fails when the two differ. Another test records every byte
between the sites and the coordinator of a whole deployed run and looks for the sites' data in it.

What crosses can still say something. Who runs the coordinator, or gets hold of what it keeps, should be trusted
with it:

- **Weights** are learned from the site's images. Research has shown that training images can be partly
  reconstructed from updates of few samples, and that one can often tell whether a known image was trained on. A
  site with few labels reveals most, and its first communication rounds more than later ones. Nothing is added
  to the weights to hide this: there is no differential privacy and no secure aggregation here, so the
  coordinator sees each site's own weights.
- **A coordinator that means harm** can do more than look: it chooses the configuration and the weights that it
  sends, and weights that are made for the purpose have a site's reply hold nearly whole images. A site cannot tell
  them from honest ones. It does not let the coordinator choose code: built-in strategies only, or those that its
  own `site.yaml` names.
- **Other sites** get the average, and each other's counts as a sum. Of two sites, each can work out the other's
  weights and counts by subtraction; of several, those who put their knowledge together can do so with the rest.
- **Class counts** say how many labelled samples of each class a site has, and so with a budget of one what the
  new label is (`share_counts: false` keeps them at home).
- **Sums over few test samples** say much about each of them: with one test sample the confusion matrix is its
  label and its prediction. Nothing stops a site from having a small test part; it should not.
- **Numbers of samples** tell how many patients a hospital has, and those of answers how fast its people work.
- **Names of classes** and of the site are texts that people chose: nothing of a patient should be in them.
- **The times** of messages, and how long a site takes, tell how large it is and when it is at work.

In the tables, C is the number of classes, and a number is one of JSON: at most some 20 bytes.
"""
_DEPLOYED = """## Around every message of a deployment

TLS keeps all of it from anybody between a site and the coordinator.
"""
_FLOWER = """### What Flower adds

A site's SuperNode calls the coordinator, never the other way round; the coordinator's machine sees the network
address that it comes from. A site takes no code from the coordinator: the application that Flower hands out is
empty, and the site runs what it has installed itself. The parts of a call, written from Flower's own types:
"""
_NOTED = """### What the coordinator notes for `feal deploy status`

In `seen.json` of its state folder, for each site:
"""
NOTES = {
    "at": "when its last reply came",
    "version": "software version of the site",
    "message": "kind of the last message",
    "round": "active-learning round of the last message",
    "step": "communication round of the last message",
    "labelled": "number of labelled samples",
    "pending": "number of answers still awaited",
    "problem": "why its last reply could not be had, in the sentence that crossed the border",
}
"""What each field of a site's notes is."""
WHY = {
    "protocol": "versions that do not understand each other part early",
    "run": "a site keeps runs apart",
    "round": "which question this is",
    "step": "which question this is",
    "key": "the same question again is answered without work",
    "configuration": "all sites compute alike",
    "version": "other versions are refused",
    "weights": "the model that is learned together",
    "class_counts": "class weights of the loss, and of selection",
    "evaluate": "figures on the way cost time",
    "ask": "the last round asks for none",
    "site": "whose reply this is",
    "status": "a site that failed is left out",
    "reason": "people can mend it",
    "seconds": "how long rounds take, for people",
    "task": "sites must fit together",
    "classes": "sites must fit together",
    "channels": "sites must fit together, and the network them",
    "height": "sites must fit together, and the network them",
    "width": "sites must fit together, and the network them",
    "dtype": "an exported model scales images alike",
    "fitting": "an exported model fits pictures alike",
    "pool": "budgets that are larger than a pool are said",
    "test": "shown to people",
    "given": "a run may begin with given labels only",
    "labelled": "weight of the site in the average; labels that vanished are noticed",
    "declined": "a site has fewer labels than were asked for",
    "loss": "shown to people; whether training goes well",
    "statistics": "figures of the model over all sites",
    "local_model": "a selection without a model of the site's own is said",
    "previous_model": "a selection without an earlier model is said",
    "asked": "whether enough was answered to go on",
    "pending": "whether enough was answered to go on",
    "refused": "people are told to look",
    "rejected": "how much diversity decided",
    "filled": "how much the strategy fell short",
    "samples": "divides the sums",
    "confusion": "accuracy, recall",
    "calibration_count": "calibration error",
    "calibration_confidence": "calibration error",
    "calibration_correct": "calibration error",
    "energy": "how far sites differ",
    "aleatoric": "mean uncertainty",
    "epistemic": "mean uncertainty",
    "zero_evidence": "a model without evidence is said",
    "class_evidence": "which class lacks evidence",
    "dice": "Dice of each class",
    "dice_count": "Dice of each class",
    "regions": "Dice and HD95 of each region",
}
"""What each field is needed for; its name means the same in every message."""
SIZES = {
    "weights": "the model",
    "configuration": "some kB of text",
    "class_counts": "C numbers",
    "classes": "C texts",
    "fitting": "at most 2 words and 2 numbers",
    "seconds": "a number for each phase",
    "statistics": "the table below",
    "confusion": "C x C numbers",
    "class_evidence": "C numbers",
    "dice": "C numbers",
    "dice_count": "C numbers",
    "regions": "3 numbers for each region",
    "energy": f"{ENERGY_BINS} numbers",
    **dict.fromkeys(
        ("calibration_count", "calibration_confidence", "calibration_correct"), f"{CALIBRATION_BINS} numbers"
    ),
}
"""How large the fields are that hold more than one thing."""


def privacy_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for kind, request in REQUESTS.items():
        parts.append(f"## `{kind}`\n\n### To the site\n\n{_table(request)}")
        parts.append(f"### From the site\n\n{_table(REPLIES[kind])}")
    parts.append(f"## `statistics`: sums over a site's test samples\n\n{_table(Statistics)}")
    noted = "\n".join(f"| `{field.name}` | {NOTES[field.name]} |" for field in fields(Heard))
    parts += [
        _DEPLOYED,
        envelopes(),
        _FLOWER,
        carriage(),
        f"{_NOTED}\n| field | what it is |\n|---|---|\n{noted}\n",
    ]
    return "\n".join(parts)


def _table(type_: type[BaseModel]) -> str:
    rows = "\n".join(
        f"| `{name}` | {field.description} | {WHY[name]} | {SIZES.get(name) or _single(field)} |"
        for name, field in _fields(type_)
    )
    return f"| field | what it is | why | size |\n|---|---|---|---|\n{rows}\n"


def _fields(type_: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in type_.model_fields.items():
        if name == "weights" and issubclass(type_, Message) and not type_.carries_weights:
            continue
        yield name, field


def _single(field: FieldInfo) -> str:
    """The size of a field that holds one thing; any other must be among `SIZES`."""
    kind = _bare(field.annotation)
    if get_origin(kind) is Literal:
        return "1 word"
    return {bool: "yes or no", int: "1 number", float: "1 number", str: "1 text"}[kind]


def _bare(annotation: Any) -> Any:
    """A type without its constraints and without None."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    members = [member for member in get_args(annotation) if member is not NoneType]
    return _bare(members[0]) if NoneType in get_args(annotation) else annotation


if __name__ == "__main__":
    print(privacy_page(), end="")
