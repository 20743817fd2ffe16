"""Handling of untrusted text: validation, and conversion for storage and display."""


def is_text(value: str) -> bool:
    """Whether the value can be encoded as UTF-8; the journal could not write a lone surrogate."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: str) -> str:
    """The text, with a question mark for each character that cannot be encoded as UTF-8."""
    return value if value.isascii() else value.encode(errors="replace").decode()


def printable(value: str) -> str:
    """The text with non-printable characters escaped: text of jobs is untrusted and must not control a terminal."""
    return value if value.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
