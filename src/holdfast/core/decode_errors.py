"""One error for all undecodable data: `msgspec.ValidationError`.

msgspec raises another error for text that is not UTF-8, and data that it can decode may still contradict itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


def unreadable(error: Exception) -> msgspec.ValidationError:
    """Converts an error to a `ValidationError`."""
    return msgspec.ValidationError(
        f"the data was not written by any version of Holdfast ({error or type(error).__name__})"
    )


@contextmanager
def reading() -> Iterator[None]:
    """Converts errors while a state is decoded, such as a missing or duplicate reference, to a `ValidationError`."""
    try:
        yield
    except msgspec.MsgspecError:
        raise
    except (ValueError, LookupError, OverflowError, RecursionError, AssertionError) as error:
        raise unreadable(error) from error
