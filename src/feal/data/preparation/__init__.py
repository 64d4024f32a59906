"""From a download to a prepared data set: found, checked, decoded, split and written."""

from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, UnfitError

__all__ = ["Download", "Draft", "Finding", "Piece", "Scan", "UnfitError"]
