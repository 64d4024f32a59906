"""The command line."""

from feal.cli.app import main

__all__ = ["main"]
