"""The environment that `holdfast up` gives to the services."""

import pytest

from holdfast.cli.server import of_topology
from holdfast.settings import FIELDS, Settings
from holdfast.settings_sources import load
from holdfast.topologies.microservices.services.environment import OwnerEnvironment, read
from holdfast.topologies.microservices.up import ServiceCommands

#: The default of a ledger.
_OF_A_LEDGER = str(FIELDS["snapshot_bytes"].default)


@pytest.mark.parametrize("owner", ["job", "queue", "result"])
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 67_108_864),
        ({"HOLDFAST_SNAPSHOT_BYTES": "65536"}, 65_536),
        ({"HOLDFAST_SNAPSHOT_BYTES": _OF_A_LEDGER}, int(_OF_A_LEDGER)),
    ],
)
def test_owner_gets_the_size_of_snapshots_that_was_set(owner: str, environment: dict[str, str], expected: int) -> None:
    """An owner makes snapshots after `snapshot_bytes` if it was set, and after its own default otherwise."""
    loaded = load(Settings, flags={"topology": "microservices"}, environment=environment, folder=None)
    given = read(owner, ServiceCommands(of_topology(loaded)).owner(owner).environment)
    assert isinstance(given, OwnerEnvironment)
    assert given.snapshot_bytes == expected
