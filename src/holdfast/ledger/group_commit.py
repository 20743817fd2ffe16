"""Group commit: one open frame, one frame being synced, and replies that wait for their frame.

The single writer of a state decides commands and applies events on one thread. Each event goes into the open frame.
While a thread syncs a frame, the writer goes on, and its events go into the next frame: one sync answers many callers.

Invariants:
- No reply leaves before everything that it is based on is durable.
- Room is reserved before an event is applied, so that a full disk is a refusal with nothing changed.
- The first failed write or sync is the last: the writer is notified once, and no frame is written after that.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.core.commands import Refusal
from holdfast.errors import Code
from holdfast.ledger.ports import Scheduler, Storage, SyncThread, Timer

if TYPE_CHECKING:
    from holdfast.ledger.snapshot_keeper import SnapshotKeeper

Done = Callable[[object], None]

NO_SPACE = Refusal(
    Code.RESOURCE_EXHAUSTED, "NO_SPACE", "no disk space is left for the journal; try again when there is"
)


class CommitConfig(msgspec.Struct, frozen=True):
    """When a frame is closed, and when the loop waits for its sync."""

    #: A frame is closed for submits at this size, so that its sync stays short.
    frame_bytes: int = 1 << 20
    #: Commit delay: 1 ms per `linger_callers` waiting callers, at most `linger_ms_max`.
    linger_callers: int = 4
    linger_ms_max: int = 3
    #: Below `lone_callers` callers, the loop waits a moment for the sync of a frame smaller than `lone_frame_bytes`.
    #: Only a journal in memory is then written without the sync thread.
    lone_callers: float = 1.5
    lone_frame_bytes: int = 65_536


class Writer(Protocol):
    """The single writer whose events are committed; called on its own thread."""

    @property
    def is_serving(self) -> bool:
        """Whether commands are accepted."""
        ...

    @property
    def queued(self) -> int:
        """The number of commands that wait to be decided."""
        ...

    @property
    def log_ms(self) -> int:
        """The log time of the last event."""
        ...

    @property
    def served_ms(self) -> int:
        """A time that never decreases, and advances even while no event finds room."""
        ...

    def sealed(self, events: list[bytes]) -> tuple[bytes, int]:
        """Returns the body of a frame with the events applied last, and the digest of the state."""
        ...

    def on_durable(self, position: int) -> None:
        """Called when a frame is durable, before its replies are sent."""
        ...

    def on_replied(self) -> None:
        """Called when the replies of a durable frame have been sent."""
        ...

    def on_failed(self, error: BaseException, unanswered: list[Done]) -> None:
        """Called when nothing more can become durable, and it is unknown which events are."""
        ...


class GroupCommit:
    """The frames of one journal. Every method is called on the writer's thread."""

    def __init__(
        self, storage: Storage, sync: SyncThread, scheduler: Scheduler, writer: Writer, config: CommitConfig
    ) -> None:
        self._storage = storage
        self._sync = sync
        self._scheduler = scheduler
        self.writer = writer
        self._config = config
        self.snapshots: SnapshotKeeper | None = None
        #: The last position that was applied, and the last one that is durable.
        self.position = self.synced = storage.end_position
        self._frame: list[bytes] = []
        self.frame_bytes = 0
        self._waiting: deque[tuple[int, Done, object]] = deque()
        #: Replies that are sent before those in `_waiting`: grants, because a worker has to run before a client waits.
        self._first: deque[tuple[int, Done, object]] = deque()
        self.is_syncing = False
        self._is_failed = False
        #: Called for a reply that nothing has to become durable for; returns the reply to send instead. It is needed
        #: where another process may have taken over the journal: only a frame that is written proves that none has.
        self.vouch: Callable[[object], object] | None = None
        #: The number of callers that wait at a time, smoothed over a few frames.
        self._crowd = 0.0
        self._linger: Timer | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was applied is durable."""
        return not self._frame and not self.is_syncing

    def make_room(self, size: int, *, spare: int) -> bool:
        """Reserves room as `reserve` does; without room, removes the oldest history first."""
        while not self.reserve(size, spare=spare):
            if self.snapshots is None or not self.snapshots.make_room():
                return False
        return True

    def reserve(self, size: int, *, spare: int) -> bool:
        """Reserves room for an event that leaves `spare` bytes free; False without room. A failed journal raises."""
        try:
            return self._storage.reserve(size, spare=spare)
        except Exception as error:
            # The journal has failed, perhaps in another call: nothing more can become durable.
            self.fail(error)
            raise

    def append(self, data: bytes, size: int) -> None:
        """Adds an event that was applied, for which `size` bytes are reserved."""
        self._frame.append(data)
        self.frame_bytes += size
        self.position += 1

    def answer(self, done: Done, reply: object, *, is_first: bool = False) -> None:
        """Calls `done` with the reply once everything that was applied so far is durable."""
        if self.position <= self.synced:
            done(reply if self.vouch is None else self.vouch(reply))
        else:
            (self._first if is_first else self._waiting).append((self.position, done, reply))

    def flush_or_linger(self) -> None:
        """Closes the frame now or, when many callers send commands, a little later.

        A sync costs the processor about as much as deciding a job. So under a crowd, fewer and fuller frames answer
        more callers a second. With few callers none waits, and a frame with as many callers as usual is complete.
        """
        config = self._config
        is_crowd = self._crowd >= config.linger_callers and self.frame_bytes < config.frame_bytes
        is_complete = len(self._waiting) >= int(self._crowd)
        if not is_crowd or is_complete or not self._frame or self.is_syncing:
            self.flush()
        elif self._linger is None:
            wait_ms = min(int(self._crowd / config.linger_callers), config.linger_ms_max)
            self._linger = self._scheduler.later(wait_ms, self._on_lingered)

    def flush(self) -> None:
        """Closes the frame, unless another one is being synced."""
        if not self._frame or self.is_syncing or self._is_failed:
            return
        self.is_syncing = True
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        (body, digest), count, now_ms = self.writer.sealed(self._frame), len(self._frame), self.writer.log_ms
        self._frame, self.frame_bytes = [], 0
        config = self._config
        is_lone = self._crowd < config.lone_callers and len(body) < config.lone_frame_bytes and not self.writer.queued
        self._sync.run(lambda: self._storage.write(body, count, digest, now_ms), self._on_synced, is_lone=is_lone)

    def fail(self, error: BaseException) -> None:
        """Stops all commits: the state may include an event that no frame will contain, or the journal has failed."""
        if self._is_failed:
            return
        self._is_failed = True
        unanswered = [done for _, done, _ in (*self._first, *self._waiting)]
        self._first.clear()
        self._waiting.clear()
        self.writer.on_failed(error, unanswered)

    def _on_lingered(self) -> None:
        self._linger = None
        self.flush()

    def _on_synced(self, result: int | BaseException) -> None:
        if isinstance(result, BaseException):
            self.fail(result)
            return
        self.is_syncing = False
        self.synced = result
        self.writer.on_durable(result)
        if self.snapshots is not None:
            self.snapshots.durable(result)
        self._crowd += (len(self._waiting) + self.writer.queued - self._crowd) / 4
        self._reply_up_to(result, self._first)
        self._reply_up_to(result, self._waiting)
        self.writer.on_replied()

    def _reply_up_to(self, synced: int, waiting: deque[tuple[int, Done, object]]) -> None:
        while waiting and waiting[0][0] <= synced:
            position, done, reply = waiting.popleft()
            assert position <= self._storage.end_position, (
                "a reply must not leave before what it is based on is durable"
            )
            done(reply)
