"""Fed-Fundus: optic disc and cup in retinal photographs of four sources, in the layout of DoFE and FedDG."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, get_args

from feal.data.prepare.base import DATASET_SOURCES, Split, make_finding
from feal.data.prepare.datasets.layout import PairedFolders, Pairing, find_entry, merge, pair_folder
from feal.data.resize import Fitting


@DATASET_SOURCES.register(
    "fed-fundus", summary="segmentation: optic disc and cup in retinal photographs of four sources"
)
class FedFundus(PairedFolders):
    """Regions of interest around the disc, stretched to a square."""

    name = "fed-fundus"
    classes = ("background", "rim", "cup")
    size = 384
    split = "8:2"
    fitting: ClassVar[Fitting] = Fitting()
    regions: ClassVar[Mapping[str, tuple[int, ...]]] = {"disc": (1, 2), "cup": (2,)}
    site_folders: ClassVar = {
        "drishti-gs": ("Domain1",),
        "rim-one-r3": ("Domain2",),
        "refuge-train": ("Domain3",),
        "refuge-val": ("Domain4",),
    }
    should_hold = "Domain1 to Domain4, each with {train,test}/ROIs/{image,mask}"
    mask_values: ClassVar = {255: 0, 128: 1, 0: 2}

    def scan_site(self, site: str, folder: Path, root: Path) -> Pairing:
        """Pair the regions of interest of both splits."""
        return merge(_scan_split(folder, split, site=site, root=root) for split in get_args(Split))


def _scan_split(folder: Path, split: Split, *, site: str, root: Path) -> Pairing:
    regions = find_entry(find_entry(folder, split), "ROIs")
    if regions is None:
        return [], [make_finding(folder, root, f"has no folder {split}/ROIs")]
    return pair_folder(regions, site=site, root=root, split=split)
