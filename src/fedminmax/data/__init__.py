"""Data sets, and how their rows come to lie with holders."""

from fedminmax.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
