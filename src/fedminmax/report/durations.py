"""Times for people."""


def in_words(seconds: float) -> str:
    """Say a time in its two largest units.

    >>> [in_words(seconds) for seconds in (0.4, 75, 3600, 90061)]
    ['0 s', '1 min 15 s', '1 h 0 min', '25 h 1 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
