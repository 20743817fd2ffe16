"""A network of which one direction is gone, and then the other."""

import functools
import random

from holdfast.lab.torture.faults import namespaces
from holdfast.lab.torture.faults.targets import some_time
from holdfast.lab.torture.faults.watching import felt
from holdfast.lab.torture.ports import Arena, NotNowError, WithIslands


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
        said: list[str] = []
        try:
            for is_towards_server, seconds in zip((is_server_first, not is_server_first), times, strict=True):
                island.cut(towards_server=is_towards_server, towards_client=not is_towards_server)
                sent = functools.partial(island.sent, towards_server=is_towards_server)
                await felt(sent, sent(), seconds, name)
                said.append(f"nothing {'from' if is_towards_server else 'to'} it for {seconds:.1f} s")
        except NotNowError:
            if not said:
                raise
        finally:
            island.mend()
        return f"{name}: {', then '.join(said)}"
