"""What was broken in a run, and what it may have done to calls, clocks and leases."""

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from holdfast.lab.check.calls import Ask, Call
from holdfast.lab.history.records import Broken, Run

#: For so long after a fault what it held up, or took away, may still come to light.
GRACE_US = 60_000_000


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

    def are_at_work(self, from_us: float, until_us: float) -> bool:
        """Whether any fault was at work then, or had been shortly before."""
        return any(one.at_us <= until_us and one.until_us + GRACE_US >= from_us for one in self.fired)
