"""The events of this version, and the refusal of commands whose events another node cannot apply.

During a rolling upgrade, nodes of two versions follow the same frames. An older node that met an unknown event could
neither follow nor take over.
"""

from typing import get_args

from holdfast.core.commands import Refusal
from holdfast.core.events import AnyEvent
from holdfast.errors import Code

#: The names of all events that this process can apply.
KNOWN_EVENTS = frozenset(event.__name__ for event in get_args(AnyEvent))


class EventGate:
    """Refuses events that a registered node does not know. `writable` changes with the view of the cluster."""

    def __init__(self) -> None:
        self.writable = KNOWN_EVENTS

    def refusal(self, event: AnyEvent) -> Refusal | None:
        """Returns the refusal of a command that led to this event; None if the event may be written."""
        name = type(event).__name__
        if name in self.writable:
            return None
        return Refusal(
            Code.FAILED_PRECONDITION,
            "EVENT_NOT_KNOWN_BY_ALL_NODES",
            f"a node of the cluster does not know the event {name} yet; upgrade all nodes, then try again",
        )
