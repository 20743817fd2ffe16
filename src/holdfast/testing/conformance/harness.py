"""What a backend's author writes so that the suite can run: how to start it, and what it can do."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

import msgspec

from holdfast.backends.ports import AdminApi, FeedApi, JobApi, ScheduleApi, WorkApi

#: Long enough that no lease runs out unless a test lets it.
LONG_LEASE_MS = 60_000
#: Short enough to be waited for.
SHORT_LEASE_MS = 300

Test = TypeVar("Test", bound=Callable[..., object])


class Capability(Enum):
    """What a backend, or the way in which it is reached, may lack."""

    ADMIN = "it has no administration"
    FEED = "it has no feed"
    HISTORY = "it has no history"
    SCHEDULES = "it has no schedules"
    NOTES = "it keeps no notes of running attempts"
    RESTART = "it keeps nothing over a restart"
    CLOCK = "its time cannot be moved"
    ORDER = "order holds within a node only"
    WORKERS = "its clients cannot see its workers"
    SESSIONS = "its workers have no sessions"
    LARGE = "what it keeps jobs in has no room for the largest payload"


class Terms(msgspec.Struct, frozen=True):
    """What a test wants of the backend that it is given."""

    lease_ms: int = LONG_LEASE_MS
    #: Nobody else uses it, from its first job on.
    is_alone: bool = False
    #: Nobody else uses it meanwhile, but jobs that tests before have left there do no harm.
    may_be_used: bool = False


class Harness(Protocol):
    """One backend, as one test uses it. `start` comes first, `stop` last; both are called by the fixture."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the tests may rely on beyond the two ports."""
        ...

    @property
    def jobs(self) -> JobApi:
        """For clients; another one after a restart."""
        ...

    @property
    def work(self) -> WorkApi:
        """For workers, as many as ask; another one after a restart."""
        ...

    @property
    def admin(self) -> AdminApi:
        """For operators, with `Capability.ADMIN`."""
        ...

    @property
    def feed(self) -> FeedApi:
        """For those who listen, with `Capability.FEED`; with `Capability.HISTORY` alone, only for histories."""
        ...

    @property
    def schedules(self) -> ScheduleApi:
        """For whoever plans, with `Capability.SCHEDULES`."""
        ...

    async def start(self, terms: Terms) -> None:
        """Serves when it returns. With an earlier start's jobs, unless the terms say alone."""
        ...

    async def stop(self) -> None:
        """Ends everything that it has started; sessions may still be open."""
        ...

    async def restart(self) -> None:
        """With `Capability.RESTART`: ends it, however rudely, and starts it on the same jobs."""
        ...

    async def advance(self, ms: int) -> None:
        """With `Capability.CLOCK`: so much time passes, during which it serves."""
        ...


class Needs(msgspec.Struct, frozen=True):
    """What one test needs."""

    capabilities: frozenset[Capability] = frozenset()
    terms: Terms = Terms()


def needs(*capabilities: Capability, lease_ms: int = LONG_LEASE_MS, is_alone: bool = False) -> Callable[[Test], Test]:
    """Says what a test needs; it is skipped where that is not declared."""
    # A backend that is stopped and started is no company for others.
    alone = is_alone or not {Capability.RESTART, Capability.CLOCK}.isdisjoint(capabilities)
    wanted = Needs(frozenset(capabilities), Terms(lease_ms, alone, alone and not is_alone))

    def say(test: Test) -> Test:
        test.needs = wanted  # type: ignore[attr-defined]  # read by `needs_of`
        return test

    return say


def needs_of(test: object) -> Needs:
    """What a test said that it needs."""
    wanted = getattr(test, "needs", Needs())
    assert isinstance(wanted, Needs)
    return wanted


def lacks(needed: Needs, harness: Harness) -> str:
    """Why the test cannot run on this backend; empty if it can."""
    missing = needed.capabilities - harness.capabilities
    return "; ".join(sorted(f"needs {one.name}: {one.value}" for one in missing))
