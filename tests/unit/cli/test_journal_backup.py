"""Refusals of `holdfast journal backup`."""

from pathlib import Path

import pytest

from holdfast.cli.journal_backup import backup
from holdfast.errors import FailedPreconditionError


def test_backup_of_jobs_in_a_database_names_the_command_for_it(tmp_path: Path) -> None:
    """The directory of a pipeline has no journal, so the refusal names the command that copies its database."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "pg_hba.conf").touch()
    with pytest.raises(FailedPreconditionError) as refusal:
        backup(tmp_path, Path("monday.dump"))
    assert refusal.value.reason == "TOPOLOGY_MISMATCH"
    assert refusal.value.message == (
        f"the jobs of {str(tmp_path)!r} are in its PostgreSQL database; while that runs, back it up with\n"
        f"  pg_dump --format custom --file monday.dump 'postgresql://holdfast@/holdfast?host={tmp_path}/postgres/socket'"
    )
