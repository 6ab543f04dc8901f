"""Train one model across many sites, minimax over demographic groups.

Names are imported when first used, so that the command line answers at once. The names on top are
those that most programs need; the rest is in `methods`, `models`, `losses`, `metrics`, `data` and
`training`.
"""

from fedminmax.core.lazy_names import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
