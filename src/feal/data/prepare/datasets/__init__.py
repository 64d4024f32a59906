"""Register the data sets that can be prepared from their download, one per file."""

from feal.data.prepare.base import DATASET_SOURCES as DATASET_SOURCES
from feal.data.prepare.datasets import camelyon, fundus, isic, octa500, polyp, prostate  # noqa: F401
