"""Translation of psycopg's errors into those of the ports."""

import psycopg

from holdfast.postgres.failures import PASSING, UNDONE
from holdfast.topologies.cluster.ports import DatabaseLostError, DatabaseRefusedError

#: No connection, a timeout, a server that shuts down or became a standby, a full disk, a deadlock.
LOST = (*PASSING, *UNDONE)


_VERSION_MIN = 13_00_00

#: The first letters of the SQLSTATEs that functions of the schema raise.
_OURS = "HF"


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the server has refused a statement: its transaction is rolled back, and the connection can be used."""
    return (error.sqlstate or "").startswith(_OURS) or not isinstance(error, LOST)


def meaning_of(error: psycopg.Error) -> DatabaseLostError | DatabaseRefusedError:
    """Returns the error that the caller of a port gets."""
    words = str(error).strip().splitlines()
    first = words[0] if words else type(error).__name__
    if not is_refusal(error):
        return lost(first)
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        return pooler_found()
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        message = f"expected the rights of the owner of the schema holdfast, found: {first}; connect as its owner"
        return DatabaseRefusedError(message, reason="DATABASE_RIGHTS_MISSING")
    return DatabaseRefusedError(f"the database refused a statement: {first}", reason="DATABASE_REFUSED")


def lost(why: str) -> DatabaseLostError:
    """Returns the error for a call whose outcome is unknown."""
    message = f"the database does not answer; try again ({why})"
    return DatabaseLostError(message, reason="DATABASE_UNAVAILABLE", details={"retry_after_s": "1"})


def pooler_found() -> DatabaseRefusedError:
    """Returns the error for a connection that is not one with the server itself."""
    message = (
        "expected a connection to PostgreSQL itself, found a pooler between, which does not keep the settings of a"
        " session from one transaction to the next; name the host and port of the server"
    )
    return DatabaseRefusedError(message, reason="DATABASE_BEHIND_POOLER")


def too_old(version_number: int) -> DatabaseRefusedError | None:
    """Returns the error for a server that lacks what the schema needs; None for any other."""
    if version_number >= _VERSION_MIN:
        return None
    message = f"expected PostgreSQL 13 or newer, found version {version_number // 10_000}; upgrade the server"
    return DatabaseRefusedError(message, reason="POSTGRES_TOO_OLD")
