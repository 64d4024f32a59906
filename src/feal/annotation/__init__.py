"""Who gives the labels."""

from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Draw, Gathered, Query, Refusal, as_label
from feal.annotation.folder import FolderAnnotator
from feal.annotation.oracle import Oracle

__all__ = [
    "ANNOTATORS",
    "Annotator",
    "Answer",
    "Draw",
    "FolderAnnotator",
    "Gathered",
    "Oracle",
    "Query",
    "Refusal",
    "as_label",
]
