"""The time until which a node may act as the leader of a shard, by the steady clock of the node.

The deadline is counted from before the renewal was sent and ends `margin_ms` early, so that it is over before the
lease ends in the database, also if this node's clock runs slower than that of the database.
"""

from holdfast.ledger.ports import Clock

#: The part of a lease that is not used: clocks that differ by less than this in their rate agree about its end.
_MARGIN_PART = 10


def margin_ms(lease_ms: int) -> int:
    """Returns the part of a lease that a leader does not use."""
    return -(-lease_ms // _MARGIN_PART)


class LeaseDeadline:
    """The deadline of one epoch. Any thread may read it."""

    __slots__ = ("_clock", "_end_ms")

    def __init__(self, clock: Clock, end_ms: int) -> None:
        self._clock = clock
        self._end_ms: int | None = end_ms

    @property
    def left_ms(self) -> int:
        """The time until the deadline; 0 if it has passed."""
        end_ms = self._end_ms
        return 0 if end_ms is None else max(0, end_ms - self._clock.steady_ms())

    @property
    def has_ended(self) -> bool:
        """Whether the node must not act as the leader any more."""
        return self.left_ms == 0

    def extend(self, end_ms: int) -> None:
        """Moves the deadline forward, unless it was revoked."""
        if self._end_ms is not None:
            self._end_ms = max(self._end_ms, end_ms)

    def revoke(self) -> None:
        """Ends the lease now and for good."""
        self._end_ms = None
