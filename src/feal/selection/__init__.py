"""Which samples to label next."""

from feal.selection.base import (
    EARLIER_ROLES,
    PREVIOUS_ROLES,
    STRATEGIES,
    Columns,
    Models,
    QueryingStrategy,
    RankingStrategy,
    Role,
    RoleModel,
    Selection,
    SelectionContext,
    Strategy,
    build_strategy,
    find_strategy,
    make_selection,
    top_k,
    validate_selection,
)
from feal.selection.kcenter import k_center
from feal.selection.observe import observe_samples
from feal.selection.relaxation import relax
from feal.selection.scores import calibrated_uncertainty
from feal.selection.strategies import feal as _feal  # noqa: F401  (registers the strategies)

__all__ = [
    "EARLIER_ROLES",
    "PREVIOUS_ROLES",
    "STRATEGIES",
    "Columns",
    "Models",
    "QueryingStrategy",
    "RankingStrategy",
    "Role",
    "RoleModel",
    "Selection",
    "SelectionContext",
    "Strategy",
    "build_strategy",
    "calibrated_uncertainty",
    "find_strategy",
    "k_center",
    "make_selection",
    "observe_samples",
    "relax",
    "top_k",
    "validate_selection",
]
