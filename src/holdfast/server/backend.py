"""The backend that a gateway serves: its ports, and the capabilities that it has."""

from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.core.capabilities import LEDGER, Capabilities, Capability
from holdfast.core.model import BackoffRule
from holdfast.errors import UnimplementedError
from holdfast.ledger.work_api import LedgerWork
from holdfast.ports import AdminApi, FeedApi, HistoryApi, JobApi, ScheduleApi

T = TypeVar("T")


class ShortRetries(msgspec.Struct, frozen=True):
    """The default attempts and back-off of jobs that are submitted in a short form."""

    max_attempts: int = limits.ATTEMPTS_DEFAULT
    backoff: BackoffRule = BackoffRule()


class Backend(msgspec.Struct, frozen=True):
    """The ports of one backend; ports that it lacks are None. Without `work` its workers connect elsewhere.

    Every port that is set must be declared. A capability whose port is None is missing, even if it is declared.
    """

    jobs: JobApi
    work: LedgerWork | None = None
    admin: AdminApi | None = None
    feed: FeedApi | None = None
    schedules: ScheduleApi | None = None
    declared: Capabilities = LEDGER
    #: Only for backends with histories and without a feed.
    histories: HistoryApi | None = None
    #: Without `work`: the error message for workers that connect here.
    elsewhere: str = ""
    short_retries: ShortRetries = ShortRetries()

    def __post_init__(self) -> None:
        undeclared = [one for one, port in self._ports.items() if port is not None and not self.declared.has(one)]
        assert not undeclared, f"{self.name} has ports that it does not declare: {undeclared}"

    @property
    def name(self) -> str:
        """The name of the topology that stores the jobs."""
        return self.declared.backend

    def capability(self, port: T | None, capability: Capability) -> T:
        """Returns the port; if it is None, raises `UnimplementedError` with the backend and the capability."""
        if port is None:
            raise UnimplementedError(self.declared.lack(capability), reason="CAPABILITY_MISSING")
        return port

    @property
    def history(self) -> HistoryApi:
        """The histories of jobs; raises an error if the backend has none."""
        return self.capability(self.feed or self.histories, Capability.HISTORY)

    @property
    def capabilities(self) -> Capabilities:
        """The declared capabilities, without those whose port is None."""
        return self.declared.without(*(one for one, port in self._ports.items() if port is None))

    @property
    def _ports(self) -> dict[Capability, object | None]:
        return {
            Capability.ADMINISTRATION: self.admin,
            Capability.FEED: self.feed,
            Capability.HISTORY: self.feed or self.histories,
            Capability.SCHEDULES: self.schedules,
        }
