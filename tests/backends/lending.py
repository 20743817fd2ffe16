"""Sets of processes that tests borrow, one test at a time.

Invariant: who needs a backend from its first job on has a new one; everybody else has what others had before, on their
own queues and types.
"""

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from holdfast.testing.conformance.harness import Terms


class Startable(Protocol):
    """Processes that start and end together."""

    def start(self) -> None:
        """Waits until all of them are ready."""
        ...

    def kill(self) -> None:
        """Ends all of them as a power cut would."""
        ...


Lent = TypeVar("Lent", bound=Startable)


class Lender(ABC, Generic[Lent]):
    """Sets by the length of their leases, each started when the first test asks."""

    def __init__(self) -> None:
        self._lent: dict[tuple[int, bool], Lent] = {}

    @abstractmethod
    def new(self, lease_ms: int, *, is_kept: bool) -> Lent:
        """Started for this caller; if it is not kept, it need not outlive a restart."""

    def lend(self, terms: Terms) -> Lent:
        """One that fits what a test wants."""
        if _is_for_one(terms):
            return self.new(terms.lease_ms, is_kept=True)
        key = terms.lease_ms, self.is_kept(terms)
        if key not in self._lent:
            self._lent[key] = self.new(terms.lease_ms, is_kept=key[1])
        return self._lent[key]

    def is_kept(self, _: Terms) -> bool:
        """Whether it has to be one that outlives a restart; all are, unless somebody says otherwise."""
        return True

    def restart(self, terms: Terms, lent: Lent) -> None:
        """Ends it and starts it on the same jobs; if it does not start, nobody else is given it."""
        key = terms.lease_ms, self.is_kept(terms)
        del self._lent[key]
        lent.kill()
        lent.start()
        self._lent[key] = lent

    def give_back(self, terms: Terms, lent: Lent) -> None:
        """The test is over."""
        if _is_for_one(terms):
            lent.kill()


def _is_for_one(terms: Terms) -> bool:
    return terms.is_alone and not terms.may_be_used
