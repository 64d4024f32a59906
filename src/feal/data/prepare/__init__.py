"""Prepare a data set from its download: scan, check, decode, split and write."""

from feal.data.prepare.base import DatasetSource as DatasetSource
from feal.data.prepare.base import DecodedSample as DecodedSample
from feal.data.prepare.base import Finding as Finding
from feal.data.prepare.base import ScanResult as ScanResult
from feal.data.prepare.base import SourceRecord as SourceRecord
from feal.data.prepare.base import UnusableFileError as UnusableFileError
