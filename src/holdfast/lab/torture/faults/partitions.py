"""A network of which one direction is gone, and then the other."""

import asyncio
import random

from holdfast.lab.torture.faults import namespaces
from holdfast.lab.torture.faults.targets import some_time
from holdfast.lab.torture.ports import Arena, WithIslands


class Partition:
    """Packets of one direction vanish between a process on an island and the rest."""

    kind = "partition"

    def lacking(self, arena: Arena) -> str:
        """Why it cannot be fired."""
        if reason := namespaces.lacking():
            return reason
        if not isinstance(arena, WithIslands) or not arena.islands:
            return f"no process of {arena.topology} lives in a network of its own"
        return ""

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Whom it cut off, in which order, and for how long."""
        assert isinstance(arena, WithIslands), "see lacking"
        name = draw.choice(sorted(arena.islands))
        island = arena.islands[name]
        is_server_first = draw.random() < 1 / 2
        times = [some_time(draw), some_time(draw)]
        try:
            for is_towards_server, seconds in zip((is_server_first, not is_server_first), times, strict=True):
                island.cut(towards_server=is_towards_server, towards_client=not is_towards_server)
                await asyncio.sleep(seconds)
        finally:
            island.mend()
        said = [f"nothing {'from' if is_server_first else 'to'} it for {times[0]:.1f} s"]
        said += [f"nothing {'to' if is_server_first else 'from'} it for {times[1]:.1f} s"]
        return f"{name}: {', then '.join(said)}"
