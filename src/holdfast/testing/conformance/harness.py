"""The harness, which a backend's author writes so that the suite can start the backend and knows its capabilities."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

import msgspec

from holdfast.core.capabilities import Capabilities, Capability
from holdfast.ports import AdminApi, CapabilityApi, FeedApi, JobApi, ScheduleApi, WorkApi

#: Long enough that no lease expires during a test by accident.
LONG_LEASE_MS = 60_000
#: Short enough to wait for its expiry.
SHORT_LEASE_MS = 300

Test = TypeVar("Test", bound=Callable[..., object])


class Control(Enum):
    """Control of a harness over its backend; independent of the topology."""

    RESTART = "the backend keeps no jobs over a restart"
    CLOCK = "the backend's clock cannot be moved"


#: A test may need a capability of the backend or a control of the harness.
Need = Capability | Control


class Terms(msgspec.Struct, frozen=True):
    """The requirements of a test for the backend that it uses."""

    lease_ms: int = LONG_LEASE_MS
    #: No other test uses the backend, before or during this test.
    is_alone: bool = False
    #: No other test uses the backend during this test, but it may contain jobs of earlier tests.
    may_be_used: bool = False


class Harness(Protocol):
    """One backend, as one test uses it. The fixture calls `start` first and `stop` last."""

    @property
    def declared(self) -> Capabilities:
        """The capabilities that the product declares for this backend, from `holdfast.core.capabilities`."""
        ...

    @property
    def beyond(self) -> frozenset[Need]:
        """The controls of the harness, and capabilities of these processes that the product does not declare."""
        ...

    @property
    def backend(self) -> CapabilityApi:
        """The API that reports the backend's capabilities."""
        ...

    @property
    def jobs(self) -> JobApi:
        """The API of clients; another object after a restart."""
        ...

    @property
    def work(self) -> WorkApi:
        """The API of workers, for any number of them; another object after a restart."""
        ...

    @property
    def admin(self) -> AdminApi:
        """The API of operators, with `Capability.ADMINISTRATION`."""
        ...

    @property
    def feed(self) -> FeedApi:
        """The event feed, with `Capability.FEED`; only its history with `Capability.HISTORY` alone."""
        ...

    @property
    def schedules(self) -> ScheduleApi:
        """The API of schedules, with `Capability.SCHEDULES`."""
        ...

    async def start(self, terms: Terms) -> None:
        """Starts the backend; it serves when this returns. It may contain jobs of earlier tests unless `is_alone`."""
        ...

    async def stop(self) -> None:
        """Ends everything that `start` has started; sessions may still be open."""
        ...

    async def restart(self) -> None:
        """Ends the backend, cleanly or not, and starts it on the same jobs; with `Control.RESTART`."""
        ...

    async def advance(self, ms: int) -> None:
        """Advances the backend's clock while it serves; with `Control.CLOCK`."""
        ...


class NeedSet(msgspec.Struct, frozen=True):
    """The needs of one test."""

    needed: frozenset[Need] = frozenset()
    terms: Terms = Terms()


def needs(*needed: Need, lease_ms: int = LONG_LEASE_MS, is_alone: bool = False) -> Callable[[Test], Test]:
    """Declares the needs of a test; it is skipped on a backend that lacks one of them."""
    # Other tests cannot use a backend that is restarted or whose clock is moved.
    alone = is_alone or not set(Control).isdisjoint(needed)
    wanted = NeedSet(frozenset(needed), Terms(lease_ms, alone, alone and not is_alone))

    def say(test: Test) -> Test:
        test.needs = wanted  # type: ignore[attr-defined]  # read by `needs_of`
        return test

    return say


def needs_of(test: object) -> NeedSet:
    """Returns the needs that a test has declared."""
    wanted = getattr(test, "needs", NeedSet())
    assert isinstance(wanted, NeedSet)
    return wanted


def lacks(needed: NeedSet, harness: Harness) -> str:
    """The reason why the test cannot run on this backend; empty if it can."""
    missing = needed.needed - harness.declared.present - harness.beyond
    return "; ".join(sorted(f"needs {one.name}: {_reason(one, harness)}" for one in missing))


def _reason(missing: Need, harness: Harness) -> str:
    return harness.declared.lack(missing) if isinstance(missing, Capability) else missing.value
