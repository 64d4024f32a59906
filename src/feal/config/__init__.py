"""Presets and overrides, validated."""

from feal.config.overrides import known_keys, known_parameters, parse
from feal.config.presets import ABOUT, preset_names, read_preset
from feal.config.resolve import applicable, load, revise

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
