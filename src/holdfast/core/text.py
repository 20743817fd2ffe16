"""Text from strangers: whether it can be kept, and how it can be shown."""


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8; a lone surrogate cannot, and would stop the journal."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: str) -> str:
    """The same text, with a question mark for what cannot be written as UTF-8."""
    return value if value.isascii() else value.encode(errors="replace").decode()


def printable(value: str) -> str:
    """The same text as a terminal may see it: what jobs carry is hostile, and an escape sequence must not get there."""
    return value if value.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
