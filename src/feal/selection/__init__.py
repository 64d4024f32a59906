"""Which samples to label next."""

from feal.selection.base import EARLIER_ROLES as EARLIER_ROLES
from feal.selection.base import PREVIOUS_ROLES as PREVIOUS_ROLES
from feal.selection.base import STRATEGIES as STRATEGIES
from feal.selection.base import Columns as Columns
from feal.selection.base import Models as Models
from feal.selection.base import QueryingStrategy as QueryingStrategy
from feal.selection.base import RankingStrategy as RankingStrategy
from feal.selection.base import Role as Role
from feal.selection.base import RoleModel as RoleModel
from feal.selection.base import Selection as Selection
from feal.selection.base import SelectionContext as SelectionContext
from feal.selection.base import Strategy as Strategy
from feal.selection.base import build_strategy as build_strategy
from feal.selection.base import check_task as check_task
from feal.selection.base import find_strategy as find_strategy
from feal.selection.base import make_selection as make_selection
from feal.selection.base import top_k as top_k
from feal.selection.base import validate_selection as validate_selection
from feal.selection.kcenter import k_center as k_center
from feal.selection.observe import observe_samples as observe_samples
from feal.selection.relaxation import relax as relax
from feal.selection.scores import calibrated_uncertainty as calibrated_uncertainty
from feal.selection.strategies import feal as _feal  # noqa: F401  (registers the strategies)
