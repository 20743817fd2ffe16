"""What a gateway serves: one backend, with the capabilities that it has."""

from typing import TypeVar

import msgspec

from holdfast.backends.ledger.work import LedgerWork
from holdfast.backends.ports import AdminApi, FeedApi, JobApi, ScheduleApi
from holdfast.errors import UnimplementedError

T = TypeVar("T")


class Backend(msgspec.Struct, frozen=True):
    """The ports of one backend; what it lacks is None. Without `work` its workers connect elsewhere."""

    jobs: JobApi
    work: LedgerWork | None = None
    admin: AdminApi | None = None
    feed: FeedApi | None = None
    schedules: ScheduleApi | None = None
    name: str = "ledger"

    def capability(self, port: T | None, what: str) -> T:
        """The port, or an error that says which backend lacks what, and where it is."""
        if port is None:
            message = f"the {self.name} backend has no {what}; `holdfast up` without --topology has all there is"
            raise UnimplementedError(message, reason="CAPABILITY_MISSING")
        return port
