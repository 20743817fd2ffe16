"""A ledger that goes on from an older state, although workers and clients remember a newer one.

Invariants (docs/decisions/0011 says why):
- No lease outlives a restore: whatever ran goes back to its queue, and its budgets are not touched.
- No token and no position of the past is given out again, also not one that was given out after the backup was made.
So a report from before finds no lease, and a reader of events who comes with a position from before is told so.
"""

import msgspec

from holdfast.core import image
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import Revoked
from holdfast.core.ledger import Ledger
from holdfast.core.lifecycle import State
from holdfast.core.outcomes import revocation_of
from holdfast.journal.disk import Disk
from holdfast.journal.new_journal import Origin, begin
from holdfast.ledger.time_travel import Moment, state_at

#: Why leases end, in the words of the event that ends them.
RESTORED = "restored"


class RestoredLedger(msgspec.Struct, frozen=True):
    """What a restored directory begins with."""

    #: Where the backup was left, and the digest of the state there.
    position: int
    digest: int
    log_time_ms: int
    #: How many jobs were running; they wait again.
    leases_ended: int
    jobs: dict[str, int]


def restore_ledger(
    backup: Disk, target: Disk, is_past: Moment, *, now_ms: int, cluster_id: bytes, epoch: int
) -> RestoredLedger:
    """Begins a journal in an empty directory with the backup's state before the first event that `is_past`."""
    ledger = state_at(backup, is_past)
    book = ledger.book
    before = (ledger.position, ledger.digest, book.last_ms)
    at_ms = max(now_ms, book.last_ms)
    origin = Origin.at(at_ms, cluster_id=cluster_id, position=ledger.position, token=book.next_token, epoch=epoch)
    ended = end_leases(ledger, at_ms)
    book.next_token, ledger.position = origin.floor + 1, origin.floor
    book.audit()
    begin(
        target,
        origin,
        image.dump(ledger),
        digest_version=DIGEST_VERSION,
        digest=ledger.digest,
        log_time_ms=book.last_ms,
    )
    return RestoredLedger(*before, ended, jobs_by_state(ledger))


def end_leases(ledger: Ledger, at_ms: int) -> int:
    """Takes every lease back, at nobody's cost; says how many there were."""
    leases = [ledger.book.leases[token] for token in sorted(ledger.book.leases)]
    if leases:
        rows = [revocation_of(lease.job, is_spent=False) for lease in leases]
        ledger.apply(Revoked(at_ms, "", RESTORED, rows, [lease.job.id for lease in leases]))
    return len(leases)


def jobs_by_state(ledger: Ledger) -> dict[str, int]:
    """How many jobs are in each state that has any."""
    counted = {state.name: ledger.book.listing.count([state]) for state in State}
    return {name: count for name, count in counted.items() if count}
