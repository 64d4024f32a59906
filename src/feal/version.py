"""The software's version, apart from everything that imports torch."""

VERSION = "0.1.0"
