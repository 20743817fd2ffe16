"""Bytes that no version ever wrote: whatever reading them leads to is one kind of error, `msgspec.ValidationError`.

msgspec itself raises something else for text that is not UTF-8, and what it can read may still contradict itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec


def unreadable(error: Exception) -> msgspec.ValidationError:
    """The one kind of error, made of another."""
    return msgspec.ValidationError(f"no version of this program ever wrote this ({error or type(error).__name__})")


@contextmanager
def reading() -> Iterator[None]:
    """While a state is read: what it refers to and does not have, or has twice, makes it unreadable."""
    try:
        yield
    except msgspec.MsgspecError:
        raise
    except (ValueError, LookupError, OverflowError, RecursionError, AssertionError) as error:
        raise unreadable(error) from error
