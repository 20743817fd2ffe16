"""The faults of a run, and their possible effects on calls, clocks and leases."""

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from holdfast_lab.check.calls import Call, JobSubmission
from holdfast_lab.history.records import Broken, Run

#: How long after a fault its effects may still appear.
GRACE_US = 60_000_000
#: How long after a fault a worker may lose its lease because of it; longer for faults that leave dead connections.
_LEASE_GRACE_US, _DEAF_GRACE_US = 5_000_000, 20_000_000
_DEAFENING = ("swallow", "partition")
#: Faults that must not cost a worker its lease: repeated resets, wrong clocks, graceful restarts, full and slow disks,
#: too many connections, and stops shorter than a lease.
SPARING = frozenset(
    {
        *("cut", "resets", "duplicate", "clock", "clock-restart", "full-disk", "full-disk-long", "slow-disk"),
        *("descriptors", "stop-short"),
    }
)
#: The proxy of the clients, which run no jobs.
_CLIENTS = "road of the clients"


class FiredFaults:
    """All faults that were fired, in order of time."""

    def __init__(self, run: Run, broken: Iterable[Broken]) -> None:
        self._enabled = run.faults
        self.fired = sorted(broken, key=attrgetter("at_us"))

    @cached_property
    def _doublings(self) -> list[Broken]:
        return [one for one in self.fired if "duplicat" in one.kind]

    def may_double(self, call: Call) -> bool:
        """Whether a request may have been delivered twice; duplicated connections may live on after the fault."""
        return bool(self._doublings) and self._doublings[0].at_us <= call.heard_us

    def are_doubling(self, call: Call) -> bool:
        """Whether the call was made while new connections were duplicated."""
        return any(one.at_us <= call.heard_us and one.until_us >= call.asked_us for one in self._doublings)

    def may_be_done(self, asked: Call | JobSubmission) -> bool:
        """Whether it may take effect, now or later; a duplicated request may succeed once and be refused once."""
        call = asked.call if isinstance(asked, JobSubmission) else asked
        return not asked.is_refused or self.may_double(call)

    @cached_property
    def have_stepped_clocks(self) -> bool:
        """Whether any wall clock was ever wrong; jobs created then keep a wrong time."""
        return any("clock" in name for name in (*self._enabled, *(one.kind for one in self.fired)))

    @cached_property
    def _taking(self) -> list[tuple[int, int]]:
        """The intervals in which a fault could cost a worker its lease."""
        return [
            (one.at_us, one.until_us + (_DEAF_GRACE_US if one.kind.startswith(_DEAFENING) else _LEASE_GRACE_US))
            for one in self.fired
            if one.kind not in SPARING and not one.target.startswith(_CLIENTS)
        ]

    def may_take_leases(self, from_us: float, until_us: float) -> bool:
        """Whether a fault that can cost a worker its lease was active then."""
        return any(begun_us <= until_us and over_us >= from_us for begun_us, over_us in self._taking)

    def are_at_work(self, from_us: float, until_us: float) -> bool:
        """Whether any fault was active then or shortly before."""
        return any(one.at_us <= until_us and one.until_us + GRACE_US >= from_us for one in self.fired)
