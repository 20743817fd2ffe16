"""What a gateway serves: one backend, with the capabilities that it has."""

from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.backends.ledger.work import LedgerWork
from holdfast.backends.ports import AdminApi, FeedApi, HistoryApi, JobApi, ScheduleApi
from holdfast.core.model import Backoff
from holdfast.errors import UnimplementedError

T = TypeVar("T")

#: What is meant, where a word alone does not say it.
_MEANS = {
    "administration": "administration (numbers, queues, workers)",
    "totals": "totals (how many jobs ended, and how long they took)",
}


class ShortRetries(msgspec.Struct, frozen=True):
    """How jobs of the short forms are tried again, where they do not say it themselves."""

    max_attempts: int = limits.ATTEMPTS_DEFAULT
    backoff: Backoff = Backoff()


class Backend(msgspec.Struct, frozen=True):
    """The ports of one backend; what it lacks is None. Without `work` its workers connect elsewhere."""

    jobs: JobApi
    work: LedgerWork | None = None
    admin: AdminApi | None = None
    feed: FeedApi | None = None
    schedules: ScheduleApi | None = None
    name: str = "ledger"
    #: Only of those who have histories and no feed.
    histories: HistoryApi | None = None
    #: What a worker is told that looks for work here although there is none.
    elsewhere: str = "workers of this topology connect to its coordinator: holdfast service worker"
    short_retries: ShortRetries = ShortRetries()

    def capability(self, port: T | None, what: str) -> T:
        """The port, or an error that says which backend lacks what, and where it is."""
        if port is None:
            raise UnimplementedError(self.lack(what), reason="CAPABILITY_MISSING")
        return port

    def lack(self, what: str) -> str:
        """That it is not there, as a sentence."""
        meant = _MEANS.get(what, what)
        return f"the {self.name} backend has no {meant}; `holdfast up` without --topology has all there is"

    @property
    def history(self) -> HistoryApi:
        """What happened to jobs; an error if nobody knows."""
        return self.capability(self.feed or self.histories, "history")

    @property
    def capabilities(self) -> dict[str, bool]:
        """Which of what a backend may lack are there."""
        return {
            "administration": self.admin is not None,
            "feed": self.feed is not None,
            "history": (self.feed or self.histories) is not None,
            "schedules": self.schedules is not None,
        }
