"""Prepare a data set from its download: scan, check, decode, split and write."""

from feal.data.prepare.base import (
    DatasetSource,
    DecodedSample,
    Finding,
    ScanResult,
    SourceRecord,
    UnusableFileError,
)

__all__ = ["DatasetSource", "DecodedSample", "Finding", "ScanResult", "SourceRecord", "UnusableFileError"]
