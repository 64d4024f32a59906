"""Annotators, which answer a site's queries with labels."""

from feal.annotation.base import (
    ANNOTATORS,
    Annotator,
    Answer,
    PollResult,
    PredictMasks,
    Query,
    Rejection,
    to_label,
)
from feal.annotation.folder import FolderAnnotator
from feal.annotation.oracle import Oracle

__all__ = [
    "ANNOTATORS",
    "Annotator",
    "Answer",
    "FolderAnnotator",
    "Oracle",
    "PollResult",
    "PredictMasks",
    "Query",
    "Rejection",
    "to_label",
]
