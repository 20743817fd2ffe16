"""The space that each event must leave free in the journal. When the disk fills up, events are refused in this order.

1. New jobs, schedules, notes, evictions and lease extensions leave `spare_bytes`, and the space of all leases.
2. Grants leave a quarter of `spare_bytes`, and `outcome_bytes` for the end of every lease, including new ones. While a
   report waits for space, the coordinator grants nothing.
3. Cancels and the other commands of operators leave only the space of all leases.
4. Outcomes and revocations use the space that was kept for the leases they end. One that needs more, because of its
   output, leaves the space of all other leases.

Invariant: for each active lease, `outcome_bytes` are free in the journal for its end. So leases can always be revoked,
and outcomes without output can always be recorded, however long the disk is full. A coordinator that starts on a full
disk may lack that space; until it has it, an end that fits into its own share uses the space that is left.
"""

from holdfast.core import events
from holdfast.core.events import AnyEvent

#: Events that are refused first (1.).
_PATIENT = (
    events.Created,
    events.Extended,
    events.Noted,
    events.Retired,
    events.ScheduleSet,
    events.Ticked,
)


def to_leave(event: AnyEvent, size: int, leases: int, *, spare_bytes: int, outcome_bytes: int) -> int:
    """Returns the bytes that must stay free after an event of `size` bytes, with `leases` active leases."""
    kept = leases * outcome_bytes
    if type(event) in _PATIENT:
        return kept + spare_bytes
    if type(event) is events.Granted:
        return kept + len(event.job_ids) * outcome_bytes + spare_bytes // 4
    ended = _ended(event) * outcome_bytes
    return 0 if size <= ended else kept - ended


def _ended(event: AnyEvent) -> int:
    """Returns the number of leases that an event ends."""
    if type(event) is events.Reported:
        return len(event.results)
    return len(event.rows) if type(event) is events.Revoked else 0
