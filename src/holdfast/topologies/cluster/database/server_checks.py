"""Checks of a server before a cluster uses it: what would lose acknowledged jobs is refused, in one sentence."""

import msgspec
import psycopg

from holdfast.postgres.statements import statements
from holdfast.topologies.cluster.database.address import DatabaseAddress
from holdfast.topologies.cluster.database.session import DatabaseSession
from holdfast.topologies.cluster.ports import DatabaseLostError, DatabaseRefusedError

_SQL = statements(__package__, "server_checks")


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and versions that a server reports, for this role and this database."""

    fsync: str
    full_page_writes: str
    #: As sessions get it that do not set it: those of users that submit jobs.
    synchronous_commit: str
    #: Where it is set: the configuration file, the database, the role.
    synchronous_commit_source: str
    is_standby: bool
    #: Whether the role owns the schema, or may create it.
    may_migrate: bool


def check_server(address: DatabaseAddress) -> None:
    """Raises DatabaseRefusedError if the server is no place for a cluster, DatabaseLostError if it does not answer."""
    problem = problem_of(facts_of(address))
    if problem is not None:
        raise problem


def facts_of(address: DatabaseAddress) -> ServerFacts:
    """Returns the facts of the server; raises DatabaseRefusedError if there are only standbys, or a pooler."""
    session = DatabaseSession(address)
    try:
        rows = session.read(_SQL["facts"])
    except DatabaseLostError:
        _refuse_standby(address)
        raise
    finally:
        session.close()
    return ServerFacts(**dict(zip(ServerFacts.__struct_fields__, rows[0], strict=True)))


def _refuse_standby(address: DatabaseAddress) -> None:
    """Raises DatabaseRefusedError if the hosts answer, but only as standbys."""
    try:
        with psycopg.connect(address.conninfo(target_session_attrs="any"), autocommit=True) as connection:
            row = connection.execute(_SQL["is_read_only"]).fetchone()
    except psycopg.Error:
        return
    if row and row[0]:
        raise _read_only()


def problem_of(facts: ServerFacts) -> DatabaseRefusedError | None:
    """Returns the first reason not to use a server."""
    if facts.is_standby:
        return _read_only()
    for name in ("fsync", "full_page_writes"):
        if getattr(facts, name) != "on":
            message = f"expected {name}=on, found off: a crash of the server would lose jobs; turn it on and restart it"
            return DatabaseRefusedError(message, reason="DATABASE_NOT_DURABLE")
    if facts.synchronous_commit == "off":
        source = facts.synchronous_commit_source
        message = (
            f"expected synchronous_commit=on, found off (set by: {source}): a crash would lose jobs that users have"
            " submitted in their transactions; turn it on there"
        )
        return DatabaseRefusedError(message, reason="DATABASE_NOT_DURABLE")
    if not facts.may_migrate:
        message = (
            "expected the owner of the schema holdfast, or a role that may create it, found neither;"
            " connect as its owner, or run GRANT CREATE ON DATABASE"
        )
        return DatabaseRefusedError(message, reason="DATABASE_RIGHTS_MISSING")
    return None


def _read_only() -> DatabaseRefusedError:
    message = "expected a server that accepts writes, found a read-only one (a standby); name the primary, or all hosts"
    return DatabaseRefusedError(message, reason="DATABASE_READ_ONLY")
