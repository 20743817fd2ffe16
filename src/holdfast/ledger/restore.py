"""Restore: a ledger that continues from an older state, although workers and clients may know a newer one.

Invariants (reasons: docs/decisions/0011):
- No lease outlives a restore: running jobs go back to their queues, and their budgets do not change.
- No token and no position is used again, not even one that was issued after the backup was made.
So an earlier report finds no lease, and a reader of events with an earlier position gets an error.
"""

import msgspec

from holdfast.core import image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import Revoked
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import State
from holdfast.core.outcomes import revocation_of
from holdfast.journal.archive import JournalArchive
from holdfast.journal.disk import Disk
from holdfast.journal.new_journal import Origin, begin
from holdfast.ledger.time_travel import Moment, state_at

#: The reason in the event that ends the leases.
RESTORED = "restored"


class RestoredLedger(msgspec.Struct, frozen=True):
    """The state with which a restored directory begins."""

    #: The position of the backup's state, and its digest.
    position: int
    digest: int
    log_time_ms: int
    #: The number of jobs that were running; they wait again.
    leases_ended: int
    jobs: dict[str, int]


def restore_ledger(
    backup: JournalArchive, target: Disk, is_past: Moment, *, now_ms: int, cluster_id: bytes, epoch: int
) -> RestoredLedger:
    """Starts a journal in an empty directory with the backup's state before the first event that `is_past`."""
    ledger = state_at(backup, is_past)
    state = ledger.state
    before = (ledger.position, ledger.digest, state.last_ms)
    at_ms = max(now_ms, state.last_ms)
    origin = Origin.at(at_ms, cluster_id=cluster_id, position=ledger.position, token=state.next_token, epoch=epoch)
    ended = end_leases(ledger, at_ms)
    state.next_token, ledger.position = origin.floor + 1, origin.floor
    state.audit()
    begin(
        target,
        origin,
        image.dump(ledger),
        digest_version=DIGEST_VERSION,
        digest=ledger.digest,
        log_time_ms=state.last_ms,
    )
    return RestoredLedger(*before, ended, jobs_by_state(ledger))


def end_leases(ledger: Ledger, at_ms: int) -> int:
    """Revokes every lease without spending a loss; returns their number."""
    leases = [ledger.state.leases[token] for token in sorted(ledger.state.leases)]
    if leases:
        rows = [revocation_of(lease.job, is_spent=False) for lease in leases]
        ledger.apply(Revoked(at_ms, "", RESTORED, rows, [lease.job.id for lease in leases]))
    return len(leases)


def jobs_by_state(ledger: Ledger) -> dict[str, int]:
    """Returns the number of jobs in each state, without empty states."""
    counted = {state.name: ledger.state.listing.count([state]) for state in State}
    return {name: count for name, count in counted.items() if count}
