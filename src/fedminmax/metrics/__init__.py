"""Results by group with intervals, and what groups and holders can expect before training."""

from fedminmax.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
