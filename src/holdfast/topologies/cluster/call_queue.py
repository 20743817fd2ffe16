"""Blocking calls of one connection: a queue in front of a `SyncThread`, which runs one call at a time."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from holdfast.ledger.ports import SyncThread

T = TypeVar("T")


class CallQueue:
    """Runs calls in order. All callbacks run on the owner's thread; only the calls themselves do not."""

    def __init__(self, sync: SyncThread) -> None:
        self._sync = sync
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def ask(self, prepare: Callable[[], Callable[[], T]], done: Callable[[T | BaseException], None]) -> None:
        """Makes the call that `prepare` returns when its turn comes; `done` gets its answer or its error."""
        self._waiting.append(lambda: self._run(prepare(), done))
        self._next()

    def _run(self, call: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        answers = list[T]()

        def work() -> int:
            answers.append(call())
            return 0

        def finished(result: int | BaseException) -> None:
            self._is_busy = False
            done(result if isinstance(result, BaseException) else answers[0])
            self._next()

        self._sync.run(work, finished, is_lone=False)

    def _next(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            self._waiting.popleft()()
