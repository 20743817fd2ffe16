"""A promise that was broken."""


class Violation(BaseException):
    """What the simulator exists to find. Not an Exception, so that no handler of the program swallows it."""


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raises with the sentence unless it holds."""
    if not holds:
        raise Violation(sentence)
