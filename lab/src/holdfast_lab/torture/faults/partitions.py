"""A network that loses one direction, and then the other."""

import functools
import random

from holdfast_lab.torture.faults import namespaces
from holdfast_lab.torture.faults.targets import some_time
from holdfast_lab.torture.faults.wait_until import felt
from holdfast_lab.torture.ports import Arena, NamespacedArena, NotNowError


class Partition:
    """Drops the packets of one direction between a process in a namespace and the rest."""

    kind = "partition"

    def lacking(self, arena: Arena) -> str:
        """Returns the reason why it cannot be fired, or an empty string."""
        if reason := namespaces.lacking():
            return reason
        if not isinstance(arena, NamespacedArena) or not arena.islands:
            return f"no process of {arena.topology} has its own network namespace"
        return ""

    async def fire(self, arena: Arena, draw: random.Random) -> str:
        """Fires the fault; returns the process, the order of directions, and the durations."""
        assert isinstance(arena, NamespacedArena), "see lacking"
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
