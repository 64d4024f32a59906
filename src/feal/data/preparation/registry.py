"""The data sets that can be prepared from their download, by name."""

from __future__ import annotations

from feal.data.preparation.contract import Download
from feal.registry import Registry

DOWNLOADS: Registry[type[Download]] = Registry("data set")
