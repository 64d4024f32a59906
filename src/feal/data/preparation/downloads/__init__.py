"""One data set a file; importing this package registers them all."""

from feal.data.preparation.downloads import (
    fed_camelyon,
    fed_fundus,
    fed_isic,
    fed_polyp,
    fed_prostate,
    octa_500,
)
from feal.data.preparation.registry import DOWNLOADS

__all__ = ["DOWNLOADS", "fed_camelyon", "fed_fundus", "fed_isic", "fed_polyp", "fed_prostate", "octa_500"]
