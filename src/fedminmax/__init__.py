"""Train one model across many data holders, minimax over demographic groups.

Names are imported when first used, so that the command line answers at once. The names on top are
those that most programs need; the rest is in `methods`, `models`, `losses`, `metrics`, `data` and
`federation`.
"""

import warnings
from importlib import import_module

from fedminmax.core.lazy_names import lazy_names

__version__ = "0.1.0"

_name_on_top, __dir__, __all__ = lazy_names(__name__, __file__)

# Names that were on top; they still work here, with a warning, and go in the next version.
_MOVED = {
    "data": ("Setting", "partition", "partition_by_dirichlet"),
    "federation": (
        *("Census", "Certificate", "DivergedError", "Progress", "Reveals", "Round"),
        *("load_checkpoint", "save_checkpoint", "start_of"),
    ),
    "losses": ("brier_loss", "cross_entropy_loss", "squared_error_loss"),
    "methods": (
        *("AFL", "AFLFast", "APStar", "DRFA", "Ditto", "FCFL", "FairFed", "FedAvgFast", "FedFB"),
        *("FedGFT", "FedMGDA", "FedMinMaxLocal", "GroupDRFA", "GroupSCAFFPD", "GroupTERM"),
        *("MinimaxFair", "OracleMinimax", "Parity", "QFedAvg", "RelaxedMinimaxFair"),
        *("StochasticAFL", "TERM"),
    ),
    "metrics": ("Advice", "regression_group_metrics"),
    "models": ("Mixture", "SavedModel", "cnn", "linear", "mlp"),
    "core.simplex": ("project_on_simplex",),
}
_RENAMED = {"partition": "partition_by_setting", "start_of": "initial_progress"}


def __getattr__(name: str) -> object:
    for place, names in _MOVED.items():
        if name in names:
            now = _RENAMED.get(name, name)
            warnings.warn(
                f"fedminmax.{name} is now fedminmax.{place}.{now}; the old name will go",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(f"fedminmax.{place}"), now)
    return _name_on_top(name)
