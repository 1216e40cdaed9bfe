"""Words for numbers in messages and tables."""


def counted(count: int, what: str) -> str:
    """Write a number with its noun, in the plural unless it is 1.

    >>> counted(1, "client"), counted(2, "client"), counted(1200, "run")
    ('1 client', '2 clients', '1200 runs')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
