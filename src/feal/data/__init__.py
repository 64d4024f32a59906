"""Images and labels of a site, through one reader of prepared folders."""

from feal.data.locate import SYNTHETIC_DATASETS, PreparedData, find_dataset, locate
from feal.data.prepared import PreparedSet, PreparedSite, SiteLabels, open_labels, open_prepared
from feal.data.synthetic.base import SyntheticDataset
from feal.data.writer import PreparedWriter

__all__ = [
    "SYNTHETIC_DATASETS",
    "PreparedData",
    "PreparedSet",
    "PreparedSite",
    "PreparedWriter",
    "SiteLabels",
    "SyntheticDataset",
    "find_dataset",
    "locate",
    "open_labels",
    "open_prepared",
]
