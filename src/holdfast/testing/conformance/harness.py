"""What a backend's author writes so that the suite can run: how to start it, and what it can do."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

import msgspec

from holdfast.core.capabilities import Capabilities, Capability
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi

#: Long enough that no lease runs out unless a test lets it.
LONG_LEASE_MS = 60_000
#: Short enough to be waited for.
SHORT_LEASE_MS = 300

Test = TypeVar("Test", bound=Callable[..., object])


class Control(Enum):
    """What a harness can do to its backend; no matter of the topology."""

    RESTART = "it keeps nothing over a restart"
    CLOCK = "its time cannot be moved"


#: What a test may need: what the backend declares, or what the harness can do to it.
Need = Capability | Control


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
    def declared(self) -> Capabilities:
        """What the product declares for this backend, from `holdfast.core.capabilities`."""
        ...

    @property
    def beyond(self) -> frozenset[Need]:
        """What the harness can do to it, and what holds for its processes although the product does not declare it."""
        ...

    @property
    def backend(self) -> CapabilityApi:
        """The backend, asked for its capabilities."""
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
        """For operators, with `Capability.ADMINISTRATION`."""
        ...

    @property
    def feed(self) -> FeedApi:
        """With `Capability.FEED`; only its history with `Capability.HISTORY` alone."""
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
        """With `Control.RESTART`: ends it, however rudely, and starts it on the same jobs."""
        ...

    async def advance(self, ms: int) -> None:
        """With `Control.CLOCK`: so much time passes, during which it serves."""
        ...


class Needs(msgspec.Struct, frozen=True):
    """What one test needs."""

    needed: frozenset[Need] = frozenset()
    terms: Terms = Terms()


def needs(*needed: Need, lease_ms: int = LONG_LEASE_MS, is_alone: bool = False) -> Callable[[Test], Test]:
    """Says what a test needs; it is skipped where that is not declared."""
    # A backend that is stopped and started is no company for others.
    alone = is_alone or not set(Control).isdisjoint(needed)
    wanted = Needs(frozenset(needed), Terms(lease_ms, alone, alone and not is_alone))

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
    missing = needed.needed - harness.declared.present - harness.beyond
    return "; ".join(sorted(f"needs {one.name}: {_reason(one, harness)}" for one in missing))


def _reason(missing: Need, harness: Harness) -> str:
    return harness.declared.lack(missing) if isinstance(missing, Capability) else missing.value
