"""A ledger in memory, asked from several threads."""

import pytest

from holdfast.settings import MEMORY, Settings
from holdfast.topologies.embedded.memory import MemoryLink


async def test_nobody_is_near_before_all_of_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that asks while another opens it goes the long way, and finds no half of a ledger."""
    memory = MemoryLink(Settings(data=MEMORY))
    opening, seen = memory.serving.open_at_once, list[object]()

    def watched() -> None:
        seen.append(memory.near())
        opening()
        seen.append(memory.near())

    monkeypatch.setattr(memory.serving, "open_at_once", watched)
    await memory.call(lambda ports: ports.admin.stats())
    assert seen == [None, None]
    assert memory.near() is not None
    await memory.close()
