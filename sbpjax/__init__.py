"""sbpjax: write a JAX train step for one device, run it on many.

The step is traced, a Split / Broadcast / Partial placement is searched for every tensor, and the parallel program is
emitted. Start with `parallelize` (wrap a step), or with `plan` (look before anything runs).
"""

from importlib.metadata import version as _version

from sbpjax.cluster import Cluster as Cluster
from sbpjax.errors import ArgumentMismatch as ArgumentMismatch
from sbpjax.errors import InfeasiblePlan as InfeasiblePlan
from sbpjax.errors import InvalidCluster as InvalidCluster
from sbpjax.errors import InvalidMesh as InvalidMesh
from sbpjax.errors import InvalidOption as InvalidOption
from sbpjax.errors import InvalidPlanFile as InvalidPlanFile
from sbpjax.errors import InvalidRecipe as InvalidRecipe
from sbpjax.errors import InvalidRule as InvalidRule
from sbpjax.errors import InvalidStrategy as InvalidStrategy
from sbpjax.errors import NotTraceable as NotTraceable
from sbpjax.errors import SbpjaxError as SbpjaxError
from sbpjax.errors import UnboundPlan as UnboundPlan
from sbpjax.errors import UnknownName as UnknownName
from sbpjax.initialising import init as init
from sbpjax.pinning import constrain as constrain
from sbpjax.planning import plan as plan
from sbpjax.plans import Plan as Plan
from sbpjax.running import parallelize as parallelize
from sbpjax.sbp import B as B
from sbpjax.sbp import P as P
from sbpjax.sbp import Placement as Placement
from sbpjax.sbp import S as S

__version__ = _version("sbpjax")
