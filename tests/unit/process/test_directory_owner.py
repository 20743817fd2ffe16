"""Detection of the topology of a data directory."""

from pathlib import Path

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.journal.manifest import MANIFEST_NAME
from holdfast.process.directory_owner import refuse_another, topology_of

SIGNS = {
    "embedded": (MANIFEST_NAME,),
    "monolith": ("node-0/NODE",),
    "microservices": tuple(f"{owner}/{MANIFEST_NAME}" for owner in ("job", "queue", "result")),
    "pipeline": ("postgres/pg_hba.conf",),
    "zookeeper": ("zookeeper/ports.json",),
}


@pytest.mark.parametrize("topology", SIGNS)
def test_directory_is_refused_by_every_topology_but_its_own(topology: str, tmp_path: Path) -> None:
    """A directory with jobs of one topology is refused by every other topology."""
    for sign in SIGNS[topology]:
        path = tmp_path / sign
        path.parent.mkdir(exist_ok=True)
        path.touch()
    refuse_another(tmp_path, topology)
    for other in SIGNS.keys() - {topology}:
        with pytest.raises(FailedPreconditionError, match=f"--topology {topology} --data") as refusal:
            refuse_another(tmp_path, other)
        assert refusal.value.reason == "TOPOLOGY_MISMATCH"


def test_unused_directory_is_accepted_by_every_topology(tmp_path: Path) -> None:
    """A directory that is missing, or has other files, belongs to no topology and is accepted by each."""
    (tmp_path / "notes.txt").touch()
    for directory in (tmp_path, tmp_path / "missing", tmp_path / "notes.txt"):
        assert topology_of(directory) == ""
        for topology in SIGNS:
            refuse_another(directory, topology)
