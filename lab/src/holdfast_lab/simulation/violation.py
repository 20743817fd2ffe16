"""A broken guarantee."""


class Violation(BaseException):
    """A broken guarantee; not an Exception, so that no handler of the program swallows it."""


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raises a violation with this sentence unless the condition holds."""
    if not holds:
        raise Violation(sentence)
