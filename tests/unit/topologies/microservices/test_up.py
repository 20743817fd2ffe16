"""The environment that `holdfast up` gives to the services."""

import pytest

from holdfast.settings import Settings
from holdfast.topologies.microservices.services.environment import OwnerEnvironment, read
from holdfast.topologies.microservices.up import ServiceCommands


@pytest.mark.parametrize("owner", ["job", "queue", "result"])
@pytest.mark.parametrize(
    ("settings", "expected"), [(Settings(), 67_108_864), (Settings(snapshot_bytes=65_536), 65_536)]
)
def test_owner_gets_the_size_of_snapshots_that_was_set(owner: str, settings: Settings, expected: int) -> None:
    """An owner makes snapshots after `snapshot_bytes` if it was set, and after its own default otherwise."""
    environment = read(owner, ServiceCommands(settings).owner(owner).environment)
    assert isinstance(environment, OwnerEnvironment)
    assert environment.snapshot_bytes == expected
