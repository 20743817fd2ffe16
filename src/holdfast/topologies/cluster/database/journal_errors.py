"""The errors of the database as those of a journal, for readers that know nothing of a database."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.journal.errors import JournalFailedError
from holdfast.topologies.cluster.ports import DatabaseLostError, DatabaseRefusedError


@contextmanager
def as_journal_errors() -> Iterator[None]:
    """Raises an error of the database as JournalFailedError."""
    try:
        yield
    except (DatabaseLostError, DatabaseRefusedError) as error:
        raise JournalFailedError(error.message, reason=error.reason, details=error.details) from error
