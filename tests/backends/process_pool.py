"""Sets of processes that tests borrow, one test at a time.

Invariant: a test that needs an unused backend gets new processes; all other tests share used ones and keep apart by
their queues and types.
"""

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from holdfast.testing.conformance.harness import Terms


class Startable(Protocol):
    """Processes that start and end together."""

    def start(self) -> None:
        """Starts the processes and waits until all are ready."""
        ...

    def kill(self) -> None:
        """Kills all processes, like a power cut."""
        ...


Lent = TypeVar("Lent", bound=Startable)


class Lender(ABC, Generic[Lent]):
    """Pool of process sets by lease length; each set starts when the first test needs it."""

    def __init__(self) -> None:
        self._lent: dict[tuple[int, bool], Lent] = {}

    @abstractmethod
    def new(self, lease_ms: int, *, is_kept: bool) -> Lent:
        """Starts a new set; unless `is_kept`, the set need not survive a restart."""

    def lend(self, terms: Terms) -> Lent:
        """Returns a set that fits the test's terms."""
        if _is_for_one(terms):
            return self.new(terms.lease_ms, is_kept=True)
        key = terms.lease_ms, self.is_kept(terms)
        if key not in self._lent:
            self._lent[key] = self.new(terms.lease_ms, is_kept=key[1])
        return self._lent[key]

    def is_kept(self, _: Terms) -> bool:
        """Whether the set must survive a restart; True unless a subclass decides otherwise."""
        return True

    def restart(self, terms: Terms, lent: Lent) -> None:
        """Restarts the set on the same jobs; a set that fails to start leaves the pool."""
        key = terms.lease_ms, self.is_kept(terms)
        del self._lent[key]
        lent.kill()
        lent.start()
        self._lent[key] = lent

    def give_back(self, terms: Terms, lent: Lent) -> None:
        """Takes the set back at the end of a test and kills it if no other test may use it."""
        if _is_for_one(terms):
            lent.kill()


def _is_for_one(terms: Terms) -> bool:
    return terms.is_alone and not terms.may_be_used
