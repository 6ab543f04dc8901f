"""Estimators for scikit-learn: the same training behind ``fit`` and ``predict``."""
