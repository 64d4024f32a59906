"""Presets and overrides, validated."""

from feal.config.overrides import known_keys, known_parameters, parse
from feal.config.resolve import ABOUT, applicable, load, preset_names, read_preset, revise

__all__ = [
    "ABOUT",
    "applicable",
    "known_keys",
    "known_parameters",
    "load",
    "parse",
    "preset_names",
    "read_preset",
    "revise",
]
