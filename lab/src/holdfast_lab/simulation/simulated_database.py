"""A database in memory: transactions with row locks, a log, a synchronous standby, and its own clock.

Invariants, as in PostgreSQL at READ COMMITTED with a synchronous standby:
- A transaction holds its row locks until it has ended. It ends when the standby has its part of the log; then its
  changes become visible, and its answer is sent. If that wait is canceled, it ends early and is UNCONFIRMED.
- The standby receives the log in order. A failover keeps a prefix of the log that contains everything confirmed.
- A crash without a failover keeps the whole log: changes may become visible that no standby has.
- A statement that waited for a lock sees the row as it is afterwards.
"""

import random
from collections import deque
from collections.abc import Callable, Generator, Sequence

from holdfast_lab.simulation.database_rows import Change, DatabaseRows, replayed
from holdfast_lab.simulation.scheduler import RUNNING, Call, SimulatedScheduler

_REPLICATION_US = (50, 1_500)

#: Called once when the transaction may go on.
Waiter = Callable[[Call], None]
#: The statements of a transaction: it yields what it waits for, and returns its answer.
Statements = Generator[Waiter, None, object]


class RowLock:
    """One row: shared or exclusive, granted in the order of the requests."""

    __slots__ = ("_holders", "_is_shared", "_waiting")

    def __init__(self) -> None:
        self._holders = 0
        self._is_shared = False
        self._waiting: deque[tuple[bool, Transaction, Call]] = deque()

    def request(self, transaction: "Transaction", call: Call, *, is_shared: bool) -> None:
        """Makes the call when the transaction has the lock."""
        self._waiting.append((is_shared, transaction, call))
        self._grant()

    def release(self) -> None:
        """Ends the hold of one transaction."""
        self._holders -= 1
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            is_shared, transaction, call = self._waiting[0]
            if self._holders and not (is_shared and self._is_shared):
                return
            self._waiting.popleft()
            if not transaction.is_over:
                self._holders += 1
                self._is_shared = is_shared
                transaction.locks.append(self)
                call()


class Transaction:
    """One transaction; `answer` is called with its result when it ends, unless the database crashes before."""

    __slots__ = ("answer", "is_canceled", "is_logged", "is_over", "locks", "on_end", "statements", "wake")

    def __init__(self, answer: Callable[[object], None]) -> None:
        self.answer = answer
        self.statements: Statements
        self.locks: list[RowLock] = []
        self.is_over = False
        #: Whether its changes are in the log, and whether its wait for the standby was canceled.
        self.is_logged = self.is_canceled = False
        #: Called when it ends, by transactions that wait for it.
        self.on_end: list[Call] = []
        #: Continues its wait for the standby.
        self.wake: Call | None = None


class SimulatedDatabase:
    """The primary, its log, and what the standby has of it."""

    def __init__(self, clock: SimulatedScheduler, rng: random.Random, shards: int) -> None:
        self.clock = clock
        self._rng = rng
        self._shards = shards
        self.rows = DatabaseRows(shards)
        self._log: list[Sequence[Change]] = []
        #: The number of transactions in the log that the standby has confirmed.
        self.replicated = 0
        self._running: list[Transaction] = []
        self._waiting: deque[tuple[int, Transaction]] = deque()
        self._locks: dict[object, RowLock] = {}
        #: Transactions that are inserting a frame, by shard and position.
        self.inserting: dict[tuple[int, int], Transaction] = {}
        #: Called with every change in the order of the log, once it cannot be lost any more.
        self.on_confirmed: Callable[[Change], None] = lambda _: None
        #: Called when all connections break.
        self.on_crash: list[Call] = []
        self.is_up = True
        self.stalled_until_us = self.standby_stalled_until_us = 0
        self._is_replicating = False
        self._clock_offset_ms = rng.randint(-3_600_000, 3_600_000)
        self.counts: dict[str, int] = {}

    def fired(self, what: str) -> None:
        """Counts an event of this kind."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def now_ms(self) -> int:
        """Returns the time of the primary's clock."""
        return self.clock.steady_ms() + self._clock_offset_ms + 10_000_000

    # -- running transactions

    def begin(self, run: Callable[[Transaction], Statements], answer: Callable[[object], None]) -> Transaction:
        """Begins a transaction."""
        transaction = Transaction(answer)
        transaction.statements = run(transaction)
        self._running.append(transaction)
        self._advance(transaction)
        return transaction

    def _advance(self, transaction: Transaction) -> None:
        if transaction.is_over:
            return
        wait_us = self.stalled_until_us - self.clock.now_us
        if wait_us > 0:
            self.clock.after(wait_us, "database", lambda: self._advance(transaction), RUNNING)
            return
        try:
            waiter = next(transaction.statements)
        except StopIteration as stop:
            self.finish(transaction, stop.value)
        except Exception as error:  # noqa: BLE001 - a refusal is an answer
            self.finish(transaction, error)
        else:
            waiter(lambda: self._advance(transaction))

    def finish(self, transaction: Transaction, result: object) -> None:
        """Ends a transaction: it releases its locks, and answers."""
        transaction.is_over = True
        self._running.remove(transaction)
        for lock in transaction.locks:
            lock.release()
        for call in transaction.on_end:
            call()
        transaction.answer(result)

    def abort(self, transaction: Transaction) -> None:
        """Ends a transaction without its changes, if they are not in the log yet."""
        if not transaction.is_over and not transaction.is_logged:
            transaction.statements.close()
            transaction.answer = _ignore
            self.finish(transaction, None)

    # -- what transactions wait for

    def lock(self, transaction: Transaction, row: object, *, is_shared: bool) -> Waiter:
        """Waits for a row lock."""
        lock = self._locks.setdefault(row, RowLock())
        return lambda call: lock.request(transaction, call, is_shared=is_shared)

    def pause(self, for_us: int) -> Waiter:
        """Waits for a while."""
        return lambda call: _plan(self.clock, for_us, call)

    def end_of(self, transaction: Transaction) -> Waiter:
        """Waits for the end of another transaction."""
        return transaction.on_end.append

    def commit(self, transaction: Transaction, changes: Sequence[Change]) -> Generator[Waiter, None, bool]:
        """Commits changes, and makes them visible; returns whether the standby has them."""
        self._log.append(changes)
        transaction.is_logged = True
        self._waiting.append((len(self._log), transaction))
        self._replicate()

        def wait(call: Call) -> None:
            transaction.wake = call

        yield wait
        for change in changes:
            change.apply(self.rows)
        return not transaction.is_canceled

    def inserted(self, place: tuple[int, int]) -> None:
        """Notes that no transaction inserts a frame at this shard and position any more."""
        self.inserting.pop(place, None)

    # -- replication

    def _replicate(self) -> None:
        """Sends the log so far to the standby."""
        if not self._is_replicating and self.is_up and self.replicated < len(self._log):
            self._is_replicating = True
            sent, log = len(self._log), self._log
            delay_us = max(0, self.standby_stalled_until_us - self.clock.now_us) + self._rng.randint(*_REPLICATION_US)
            self.clock.after(delay_us, "standby", lambda: self._on_replicated(sent, log), RUNNING)

    def _on_replicated(self, sent: int, log: list[Sequence[Change]]) -> None:
        if log is not self._log:
            return  # the primary that sent it is gone
        self._is_replicating = False
        self._confirm(sent)
        while self._waiting and self._waiting[0][0] <= sent:
            _, transaction = self._waiting.popleft()
            self._wake(transaction)
        self._replicate()

    def _confirm(self, end: int) -> None:
        for changes in self._log[self.replicated : end]:
            self.replicated += 1
            for change in changes:
                self.on_confirmed(change)

    def _wake(self, transaction: Transaction) -> None:
        wake, transaction.wake = transaction.wake, None
        if wake is not None:
            wake()

    def cancel_waits(self) -> None:
        """Cancels the waits of all transactions for the standby: they end, visible and unconfirmed."""
        for _, transaction in list(self._waiting):
            if transaction.wake is not None:
                transaction.is_canceled = True
                self.fired("canceled wait")
                self._wake(transaction)

    # -- faults

    def crash(self, down_us: int, *, is_failover: bool, clock_step_ms: int = 0) -> None:
        """Ends the primary. After a failover the standby goes on with its log, else the primary with its own."""
        if not self.is_up:
            return
        self.is_up = False
        end = self._rng.randint(self.replicated, len(self._log)) if is_failover else len(self._log)
        if end < len(self._log):
            self.fired("lost commits")
        self._log = self._log[:end]
        for transaction in self._running:
            transaction.is_over = True
            transaction.statements.close()
        self._running, self._waiting, self._locks, self.inserting = [], deque(), {}, {}
        self.rows = replayed(self._shards, self._log)
        self._is_replicating = False
        if is_failover:
            self._confirm(end)
            self._clock_offset_ms += clock_step_ms
        for call in list(self.on_crash):
            call()
        self.clock.after(down_us, "database up", self._recover)

    def _recover(self) -> None:
        self.is_up = True
        self._replicate()


def _ignore(_: object) -> None:
    """Does nothing: no client waits for the answer."""


def _plan(clock: SimulatedScheduler, delay_us: int, call: Call) -> None:
    clock.after(delay_us, "database", call, RUNNING)
