"""What was broken in a run, and what it may have done to calls, clocks and leases."""

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from holdfast.lab.check.calls import Ask, Call
from holdfast.lab.history.records import Broken, Run

#: For so long after a fault what it held up, or took away, may still come to light.
GRACE_US = 60_000_000
#: For so long after a fault a worker may be missed because of it; a connection that it has left deaf lasts longer.
_LEASE_GRACE_US, _DEAF_GRACE_US = 5_000_000, 20_000_000
_DEAFENING = ("swallow", "partition")
#: What costs no worker its lease, whatever it hits: connections that are reset again and again, wrong clocks, orderly
#: restarts, full and slow disks, too many connections, and processes that stand still for less than a lease.
SPARING = frozenset(
    {
        *("cut", "resets", "duplicate", "clock", "clock-restart", "full-disk", "full-disk-long", "slow-disk"),
        *("descriptors", "stop-short"),
    }
)
#: The road of those who ask and never run a job.
_CLIENTS = "road of the clients"


class Faults:
    """Every fault that was fired, in the order of time."""

    def __init__(self, run: Run, broken: Iterable[Broken]) -> None:
        self._enabled = run.faults
        self.fired = sorted(broken, key=attrgetter("at_us"))

    @cached_property
    def _doublings(self) -> list[Broken]:
        return [one for one in self.fired if "duplicat" in one.kind]

    def may_double(self, call: Call) -> bool:
        """Whether what was asked can have reached the other end twice; doubled connections may live on."""
        return bool(self._doublings) and self._doublings[0].at_us <= call.heard_us

    def are_doubling(self, call: Call) -> bool:
        """Whether it was asked at a time when new connections were doubled."""
        return any(one.at_us <= call.heard_us and one.until_us >= call.asked_us for one in self._doublings)

    def may_be_done(self, asked: Call | Ask) -> bool:
        """Whether it can have happened, now or later. Of what arrived twice one may be done and the other refused."""
        call = asked.call if isinstance(asked, Ask) else asked
        return not asked.is_refused or self.may_double(call)

    @cached_property
    def have_stepped_clocks(self) -> bool:
        """Whether any wall clock was ever wrong; what was created then keeps a wrong time for good."""
        return any("clock" in name for name in (*self._enabled, *(one.kind for one in self.fired)))

    @cached_property
    def _taking(self) -> list[tuple[int, int]]:
        """From when until when each fault that may cost a worker its lease was at work."""
        return [
            (one.at_us, one.until_us + (_DEAF_GRACE_US if one.kind.startswith(_DEAFENING) else _LEASE_GRACE_US))
            for one in self.fired
            if one.kind not in SPARING and not one.target.startswith(_CLIENTS)
        ]

    def may_take_leases(self, from_us: float, until_us: float) -> bool:
        """Whether a fault that can cost a worker its lease was at work then."""
        return any(begun_us <= until_us and over_us >= from_us for begun_us, over_us in self._taking)

    def are_at_work(self, from_us: float, until_us: float) -> bool:
        """Whether any fault was at work then, or had been shortly before."""
        return any(one.at_us <= until_us and one.until_us + GRACE_US >= from_us for one in self.fired)
