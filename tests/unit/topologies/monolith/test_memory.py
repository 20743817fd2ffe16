"""Memory shares of the nodes of a monolith."""

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.settings import MEMORY, Settings
from holdfast.topologies.monolith import up as monolith

LEAST = 16 << 20


def share(settings: Settings) -> int:
    """Returns the memory share of the first node."""
    command = monolith.role(settings, 0).command
    return int(command[command.index("--memory-bytes") + 1])


def test_nodes_share_the_given_memory() -> None:
    """The nodes of a monolith share the given memory."""
    settings = Settings(data=MEMORY, nodes=3, memory_bytes=3 * LEAST)
    monolith.check(settings)
    assert share(settings) == LEAST


def test_memory_that_is_too_little_for_all_nodes_is_refused() -> None:
    """Memory that is too little for all nodes is refused, and the error names the total and not the share."""
    with pytest.raises(InvalidArgumentError, match=f"at least {3 * LEAST}, because 3 nodes share it"):
        monolith.check(Settings(data=MEMORY, nodes=3, memory_bytes=3 * LEAST - 1))


def test_nodes_on_a_small_machine_get_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small machine nodes start with the minimum, because no option is wrong."""
    monkeypatch.setattr(monolith, "memory_for_jobs", lambda _: LEAST)
    settings = Settings(data=MEMORY, nodes=64)
    monolith.check(settings)
    assert share(settings) == LEAST
