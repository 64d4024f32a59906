"""Which samples to label next."""

from feal.selection.calibration import calibrated_uncertainty
from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Role, RoleModel, Strategy
from feal.selection.observation import observed
from feal.selection.relaxation import relax
from feal.selection.strategies import feal as _feal  # noqa: F401  (registers the strategies)

__all__ = [
    "STRATEGIES",
    "Choice",
    "Columns",
    "Context",
    "Models",
    "Role",
    "RoleModel",
    "Strategy",
    "calibrated_uncertainty",
    "observed",
    "relax",
]
