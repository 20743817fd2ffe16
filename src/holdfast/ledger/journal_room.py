"""How much room each event must leave in the journal, so that a filling disk refuses in this order.

1. New jobs, schedules, notes and evictions: they leave `spare_bytes`.
2. Grants: they leave a quarter of that, and `outcome_bytes` for the end of every lease, their own included. While a
   report waits for room there are none.
3. Cancels and the other commands of operators: they leave the room of all leases, and nothing more.
4. Outcomes and revocations use the room that was kept for the leases they end. One that needs more, because of its
   output, leaves the room of all other leases.

Invariant: while a lease is out, `outcome_bytes` are free in the journal for its end. So leases can always be taken back
and outcomes without output can always be recorded, however long the disk is full. A coordinator that starts on a full
disk may miss that room; until it has it, an end that fits into its own share takes what there is.
"""

from holdfast.core import events
from holdfast.core.events import AnyEvent

#: Events that are refused while there is still room for others.
_PATIENT = (
    events.Created,
    events.Extended,
    events.Noted,
    events.Retired,
    events.ScheduleSet,
    events.Ticked,
)


def to_leave(event: AnyEvent, size: int, leases: int, *, spare_bytes: int, outcome_bytes: int) -> int:
    """How many bytes must stay free beside an event of `size` bytes, decided while so many leases are out."""
    kept = leases * outcome_bytes
    if type(event) in _PATIENT:
        return kept + spare_bytes
    if type(event) is events.Granted:
        return kept + len(event.job_ids) * outcome_bytes + spare_bytes // 4
    ended = _ended(event) * outcome_bytes
    return 0 if size <= ended else kept - ended


def _ended(event: AnyEvent) -> int:
    """How many leases an event ends."""
    if type(event) is events.Reported:
        return len(event.results)
    return len(event.rows) if type(event) is events.Revoked else 0
