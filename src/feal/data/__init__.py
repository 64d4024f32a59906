"""Images and labels of a site, through one reader of prepared folders."""

from feal.data.datasets import DATASETS, locate, located
from feal.data.prepared import PreparedSet, PreparedSite, open_prepared
from feal.data.truth import Truth, open_truth
from feal.data.writing import PreparedWriter

__all__ = [
    "DATASETS",
    "PreparedSet",
    "PreparedSite",
    "PreparedWriter",
    "Truth",
    "locate",
    "located",
    "open_prepared",
    "open_truth",
]
