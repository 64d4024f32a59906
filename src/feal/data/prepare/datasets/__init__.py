"""Register the data sets that can be prepared from their download, one per file."""

from feal.data.prepare.base import DATASET_SOURCES
from feal.data.prepare.datasets import camelyon as fed_camelyon
from feal.data.prepare.datasets import fundus as fed_fundus
from feal.data.prepare.datasets import isic as fed_isic
from feal.data.prepare.datasets import octa500 as octa_500
from feal.data.prepare.datasets import polyp as fed_polyp
from feal.data.prepare.datasets import prostate as fed_prostate

__all__ = ["DATASET_SOURCES", "fed_camelyon", "fed_fundus", "fed_isic", "fed_polyp", "fed_prostate", "octa_500"]
