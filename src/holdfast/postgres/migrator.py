"""Migrations: numbered files, each applied once, in order, and never changed afterwards.

Invariants: one process at a time migrates (an advisory lock); all missing migrations are applied in one transaction; a
database that has a migration unknown to this program, or a different text of a known one, is not changed.
"""

import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any

import msgspec
from psycopg import Connection

from holdfast.errors import FailedPreconditionError

#: The number of the advisory lock; nothing else in the database may use it.
_LOCK = 0x686F6C6466617374
_NAME = re.compile(r"(\d{4})_\w+\.sql")

#: The topology whose migrations begin with a file.
_TOPOLOGIES: Mapping[str, str] = MappingProxyType({"0001_jobs.sql": "pipeline", "0001_cluster.sql": "cluster"})

_MADE = b"""
CREATE SCHEMA IF NOT EXISTS holdfast;
CREATE TABLE IF NOT EXISTS holdfast.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Detects a text that was changed after the migration was applied."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_migrations(package: str) -> list[Migration]:
    """Returns the migrations in the folder `migrations` of a package, in order."""
    folder = resources.files(package) / "migrations"
    found = [(match, file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return sorted(
        (Migration(int(match[1]), file.name, file.read_text()) for match, file in found),
        key=lambda migration: migration.version,
    )


def migrate(connection: Connection[Any], migrations: list[Migration]) -> list[str]:
    """Applies the missing migrations in one transaction, and returns their names."""
    with connection.transaction():
        # While it waits for the lock, another process migrates, which may take long.
        connection.execute("SET LOCAL statement_timeout = 0", prepare=False)
        connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (_LOCK,), prepare=False)
        if not connection.execute("SELECT to_regclass('holdfast.migrations') IS NOT NULL").fetchall()[0][0]:
            connection.execute(_MADE, prepare=False)
        rows = connection.execute("SELECT version, name, checksum FROM holdfast.migrations", prepare=False)
        applied = {int(version): (str(name), str(checksum)) for version, name, checksum in rows.fetchall()}
        _check(applied, migrations)
        missing = [migration for migration in migrations if migration.version not in applied]
        for migration in missing:
            connection.execute(migration.text.encode(), prepare=False)
            connection.execute(
                "INSERT INTO holdfast.migrations (version, name, checksum) VALUES (%s, %s, %s)",
                (migration.version, migration.name, migration.checksum),
                prepare=False,
            )
    return [migration.name for migration in missing]


def _check(applied: dict[int, tuple[str, str]], migrations: list[Migration]) -> None:
    _check_topology(applied, migrations)
    known = {migration.version: migration for migration in migrations}
    for version, (name, checksum) in sorted(applied.items()):
        migration = known.get(version)
        if migration is None:
            message = f"the database has the migration {name}, which this program does not know; use a newer holdfast"
            raise FailedPreconditionError(message, reason="SCHEMA_TOO_NEW")
        if migration.checksum != checksum:
            message = f"the database was migrated with another text of {name}; use the holdfast version that created it"
            raise FailedPreconditionError(message, reason="SCHEMA_CHANGED")


def _check_topology(applied: dict[int, tuple[str, str]], migrations: list[Migration]) -> None:
    found, wanted = (_TOPOLOGIES.get(name) for name in (applied.get(1, ("", ""))[0], migrations[0].name))
    if found is not None and wanted is not None and found != wanted:
        message = (
            f"expected a database of the topology {wanted}, found one of the topology {found}: name another database"
        )
        raise FailedPreconditionError(message, reason="DATABASE_OF_ANOTHER_TOPOLOGY")
