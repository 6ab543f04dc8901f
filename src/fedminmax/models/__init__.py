"""Models as torch modules, and what `fedminmax train` leaves to predict with."""

from fedminmax.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
