"""One paper per file: each method is a frozen record of pure functions, state in, state out."""

from fedminmax.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
