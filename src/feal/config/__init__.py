"""Presets and overrides, validated."""

from feal.config.overrides import known_keys as known_keys
from feal.config.overrides import known_parameters as known_parameters
from feal.config.overrides import parse as parse
from feal.config.resolve import ABOUT as ABOUT
from feal.config.resolve import applicable as applicable
from feal.config.resolve import load as load
from feal.config.resolve import preset_names as preset_names
from feal.config.resolve import read_preset as read_preset
from feal.config.resolve import revise as revise
