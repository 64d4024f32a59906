"""Who gives the labels."""

from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Query

__all__ = ["ANNOTATORS", "Annotator", "Answer", "Query"]
