"""Translation of database errors: no psycopg error leaves the packages that use it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from holdfast.errors import HoldfastError, InternalError, UnavailableError

#: The database has rolled the transaction back: it may be retried at once.
UNDONE = (errors.DeadlockDetected, errors.SerializationFailure)

#: Temporary failures: no connection, a timeout, a server that shuts down, a full disk, a standby.
PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)

_RETRY_AFTER_S = "1"


def meaning_of(error: psycopg.Error) -> HoldfastError:
    """Returns the `HoldfastError` that callers get for a psycopg error."""
    words = str(error).strip().splitlines()
    first = words[0] if words else type(error).__name__
    if isinstance(error, PASSING):
        message = f"the database does not answer; try again ({first})"
        return UnavailableError(message, reason="DATABASE_UNAVAILABLE", details={"retry_after_s": _RETRY_AFTER_S})
    return InternalError(f"the database refused a statement: {first}", reason="DATABASE_REFUSED")


@contextmanager
def in_our_words() -> Iterator[None]:
    """Raises psycopg errors as `HoldfastError`."""
    try:
        yield
    except psycopg.Error as error:
        raise meaning_of(error) from error
