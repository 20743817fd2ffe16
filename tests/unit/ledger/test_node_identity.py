"""The owner of a data directory, and the error for opening a directory of another topology."""

from pathlib import Path

import pytest

from holdfast.core.owner import Ownership
from holdfast.errors import FailedPreconditionError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.ledger.node_identity import claim


def _made_by_services(directory: Path, *owners: str) -> None:
    for owner in owners:
        (directory / owner).mkdir()
        (directory / owner / MANIFEST_NAME).touch()


def test_folder_of_all_nodes_is_not_served_alone(tmp_path: Path) -> None:
    """The folder that contains the directories of all nodes is refused, with the command that serves them."""
    claim(tmp_path / "node-0", Ownership(index=0, nodes=3))
    with pytest.raises(FailedPreconditionError, match="--topology monolith --nodes 3 --data"):
        claim(tmp_path, None)


def test_folder_of_all_services_is_not_served_alone(tmp_path: Path) -> None:
    """The folder that contains the directories of the services is refused, with the command that serves them."""
    _made_by_services(tmp_path, "job", "queue", "result")
    with pytest.raises(FailedPreconditionError, match="--topology microservices --data"):
        claim(tmp_path, None)


def test_folder_of_a_private_database_is_not_served_alone(tmp_path: Path) -> None:
    """The folder of the pipeline's PostgreSQL is refused, but an ordinary folder named `postgres` is not."""
    (tmp_path / "postgres").mkdir()
    claim(tmp_path, None)
    (tmp_path / "postgres" / "pg_hba.conf").touch()
    with pytest.raises(FailedPreconditionError, match="--topology pipeline --data"):
        claim(tmp_path, None)


def test_other_folders_in_a_directory_do_not_matter(tmp_path: Path) -> None:
    """Folders with the name of a service do not block a directory, nor do nodes if the directory has its own jobs."""
    _made_by_services(tmp_path, "job", "queue")
    claim(tmp_path, None)
    claim(tmp_path / "node-0", Ownership(index=0, nodes=3))
    (tmp_path / MANIFEST_NAME).touch()
    claim(tmp_path, None)
