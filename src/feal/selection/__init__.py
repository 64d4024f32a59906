"""Which samples to label next."""

from feal.selection.calibration import calibrated_uncertainty
from feal.selection.contract import (
    QUERIED,
    STRATEGIES,
    Choice,
    Columns,
    Context,
    Models,
    QueryingStrategy,
    Role,
    RoleModel,
    Strategy,
    check_choice,
    chosen,
)
from feal.selection.named import short_name, strategy_named, whole_name
from feal.selection.observation import observed
from feal.selection.ranking import best
from feal.selection.relaxation import relax
from feal.selection.strategies import feal as _feal  # noqa: F401  (registers the strategies)

__all__ = [
    "QUERIED",
    "STRATEGIES",
    "Choice",
    "Columns",
    "Context",
    "Models",
    "QueryingStrategy",
    "Role",
    "RoleModel",
    "Strategy",
    "best",
    "calibrated_uncertainty",
    "check_choice",
    "chosen",
    "observed",
    "relax",
    "short_name",
    "strategy_named",
    "whole_name",
]
