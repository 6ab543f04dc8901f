"""Bounds as text that is true as printed: lower bounds rounded down, upper bounds and gaps up."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

MIN_DIGITS, MAX_DIGITS = 4, 9
# Numbers of other sizes are written with an exponent.
MAX_PLACES = 4


def lower_text(value: float, digits: int) -> str:
    """Format a lower bound with at most so many digits, not above it.

    >>> lower_text(0.39528149, 6), lower_text(0.45, 4), lower_text(-1.23456, 3)
    ('0.395281', '0.45', '-1.24')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def upper_text(value: float, digits: int) -> str:
    """Format an upper bound or a gap with at most so many digits, not below it.

    >>> upper_text(0.39528109, 6), upper_text(0.45, 4), upper_text(1.01e-8, 1)
    ('0.395282', '0.45', '2e-8')
    """
    return _rounded(value, digits, ROUND_CEILING)


def upper_percent(share: float, digits: int = 2) -> str:
    """Format a share as an upper bound in percent.

    >>> upper_percent(0.0123456)
    '1.3 %'
    """
    return f"{upper_text(100 * share, digits)} %"


def bounds_text(lower: float, upper: float) -> tuple[str, str]:
    """Format both with as few digits as show their distance, at most twice as large as it is.

    >>> bounds_text(0.4498, 0.45), bounds_text(0.39528100, 0.39528121)
    (('0.4498', '0.45'), ('0.395281', '0.3952813'))
    """
    digits = MIN_DIGITS
    while True:
        below, above = lower_text(lower, digits), upper_text(upper, digits)
        if digits == MAX_DIGITS or float(above) - float(below) <= 2.0 * (upper - lower):
            return below, above
        digits += 1


def _rounded(value: float, digits: int, direction: str) -> str:
    # By its shortest decimal: 0.45 is not rounded up because its double is above it.
    exact = Decimal(repr(float(value)))
    number = Context(prec=digits, rounding=direction).plus(exact).normalize()
    return f"{number:f}" if abs(number.adjusted()) <= MAX_PLACES else f"{number:e}"
