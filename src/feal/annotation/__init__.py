"""Who gives the labels."""

from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Query, as_label
from feal.annotation.oracle import Oracle

__all__ = ["ANNOTATORS", "Annotator", "Answer", "Oracle", "Query", "as_label"]
