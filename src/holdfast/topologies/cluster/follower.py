"""A follower: keeps the state of a shard applied on a node that does not lead it, so that a takeover is short.

Signals of the database wake it; without them it polls. A state that cannot have come from these frames is a divergence:
the follower stops, says so, and this node does not lead the shard. Blocking work runs on the follower's `SyncThread`.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from holdfast.core.condition import Condition
from holdfast.core.ledger import Ledger
from holdfast.ledger.ports import Scheduler, SyncThread, Timer
from holdfast.topologies.cluster.call_queue import CallQueue
from holdfast.topologies.cluster.followed_ledger import FollowedLedger
from holdfast.topologies.cluster.ports import DatabaseLostError

POLL_MS = 2_000
_RETRY_MS = 100


class FollowerState(StrEnum):
    """The stages of a follower."""

    #: It reads the snapshot and the frames since then.
    STARTING = "starting"
    #: It has reached the end once, and applies new frames.
    FOLLOWING = "following"
    #: It applies the last frames, and gives its state to a coordinator.
    TAKING_OVER = "taking-over"
    #: Its state contradicts the frames; it has stopped for good.
    DIVERGED = "diverged"
    CLOSED = "closed"


class TakenOver(msgspec.Struct, frozen=True):
    """The state with which a coordinator starts, and the end of the frames from which its journal continues."""

    ledger: Ledger
    position: int
    link: int


class ShardFollower:
    """The follower of one shard. Every method is called on one thread, the owner's."""

    def __init__(
        self, shard: int, scheduler: Scheduler, sync: SyncThread, followed: FollowedLedger, poll_ms: int = POLL_MS
    ) -> None:
        self._shard = shard
        self._scheduler = scheduler
        self._calls = CallQueue(sync)
        self._followed = followed
        self._poll_ms = poll_ms
        self.state = FollowerState.STARTING
        #: Why the follower has diverged, or the last problem with the database; empty if there is none.
        self.problem = ""
        self._is_reading = self._is_woken = False
        self._timer: Timer | None = None
        self._when_taken: Callable[[TakenOver | None], None] | None = None

    @property
    def position(self) -> int:
        """The last position that was applied."""
        return self._followed.position

    @property
    def can_lead(self) -> bool:
        """Whether a coordinator could continue from this state."""
        return self.state in (FollowerState.FOLLOWING, FollowerState.TAKING_OVER)

    def start(self) -> None:
        """Begins to follow."""
        self._read()

    def wake(self) -> None:
        """Reads now: the database has signalled a new frame."""
        self._is_woken = True
        self._read()

    def take_over(self, done: Callable[[TakenOver | None], None]) -> None:
        """Applies the frames up to the end; called when the takeover of this node is committed.

        `done` gets the state, which this follower does not use any more; None if it has diverged. It goes on trying
        while the database is away.
        """
        self._when_taken = done
        if self.state is FollowerState.DIVERGED:
            self._taken(None)
        else:
            self.state = FollowerState.TAKING_OVER
            self._calls.ask(lambda: self._followed.take_over, self._on_taken)

    def close(self) -> None:
        """Stops to follow."""
        if self.state is not FollowerState.CLOSED:
            self.state = FollowerState.CLOSED
            self._cancel_timer()
            self._calls.ask(lambda: self._followed.close, lambda _: None)

    def conditions(self) -> Sequence[Condition]:
        """Returns the condition of a follower that has diverged."""
        if self.state is not FollowerState.DIVERGED:
            return ()
        return [Condition(f"this node does not follow shard {self._shard} any more", self.problem.rstrip("."))]

    # -- reading

    def _read(self) -> None:
        if self._is_reading or self.state not in (FollowerState.STARTING, FollowerState.FOLLOWING):
            return
        self._is_reading, self._is_woken = True, False
        self._cancel_timer()
        self._calls.ask(lambda: self._followed.advance, self._on_read)

    def _on_read(self, result: int | BaseException) -> None:
        self._is_reading = False
        if self.state not in (FollowerState.STARTING, FollowerState.FOLLOWING):
            return
        if isinstance(result, DatabaseLostError):
            self.problem = result.message
            self._timer = self._scheduler.later(_RETRY_MS, self._read)
        elif isinstance(result, BaseException):
            self._diverge(result)
        elif result or self._is_woken:
            self._scheduler.soon(self._read)
        else:
            self.state, self.problem = FollowerState.FOLLOWING, ""
            self._timer = self._scheduler.later(self._poll_ms, self._read)

    def _on_taken(self, result: int | BaseException) -> None:
        if self.state is not FollowerState.TAKING_OVER:
            return
        if isinstance(result, DatabaseLostError):
            self._scheduler.later(_RETRY_MS, self._take_again)
        elif isinstance(result, BaseException):
            self._diverge(result)
            self._taken(None)
        else:
            taken = TakenOver(self._followed.ledger, self._followed.position, self._followed.link)
            self.close()
            self._taken(taken)

    def _take_again(self) -> None:
        if self.state is FollowerState.TAKING_OVER:
            self._calls.ask(lambda: self._followed.take_over, self._on_taken)

    def _taken(self, taken: TakenOver | None) -> None:
        done, self._when_taken = self._when_taken, None
        if done is not None:
            done(taken)

    def _diverge(self, error: BaseException) -> None:
        self.state = FollowerState.DIVERGED
        self.problem = f"{error or type(error).__name__}"
        self._calls.ask(lambda: self._followed.close, lambda _: None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
