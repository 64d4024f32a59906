"""Images and labels of a site, through one reader of prepared folders."""

from feal.data.locate import SYNTHETIC_DATASETS as SYNTHETIC_DATASETS
from feal.data.locate import PreparedData as PreparedData
from feal.data.locate import find_dataset as find_dataset
from feal.data.locate import locate as locate
from feal.data.prepared import PreparedSet as PreparedSet
from feal.data.prepared import PreparedSite as PreparedSite
from feal.data.prepared import SiteLabels as SiteLabels
from feal.data.prepared import open_labels as open_labels
from feal.data.prepared import open_prepared as open_prepared
from feal.data.synthetic.base import SyntheticDataset as SyntheticDataset
from feal.data.writer import PreparedWriter as PreparedWriter
