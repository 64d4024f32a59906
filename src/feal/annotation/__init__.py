"""Annotators, which answer a site's queries with labels."""

from feal.annotation.base import ANNOTATORS as ANNOTATORS
from feal.annotation.base import Annotator as Annotator
from feal.annotation.base import Answer as Answer
from feal.annotation.base import PollResult as PollResult
from feal.annotation.base import PredictMasks as PredictMasks
from feal.annotation.base import Query as Query
from feal.annotation.base import Rejection as Rejection
from feal.annotation.base import to_label as to_label
from feal.annotation.folder import FolderAnnotator as FolderAnnotator
from feal.annotation.oracle import Oracle as Oracle
