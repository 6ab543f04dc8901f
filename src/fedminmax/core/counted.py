"""Numbers of things in words, one or many."""


def counted(amount: int, one: str, many: str | None = None) -> str:
    """Say a number of things; ``many`` is for words that do not just end in an s.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    >>> counted(1, "row has", "rows have"), counted(2, "row has", "rows have")
    ('1 row has', '2 rows have')
    """
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"
