"""The two ways in which work stops: the user's mistake, and a run that diverged."""


class InputError(ValueError):
    """What came does not fit: one line with what came, what was expected and what to do."""


class DivergedError(ArithmeticError):
    """Training left the finite numbers: one line with the round, the method and advice."""
