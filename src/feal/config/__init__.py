"""Presets and overrides, validated."""

from feal.config.catalogue import ABOUT, preset_names, read_preset
from feal.config.combinations import combinations
from feal.config.loading import load, revise
from feal.config.overrides import known_keys, parse

__all__ = ["ABOUT", "combinations", "known_keys", "load", "parse", "preset_names", "read_preset", "revise"]
