"""Reads the state of one owner from its journal or a backup, and starts a new journal with it.

Invariants, as for a ledger (docs/decisions/0011): running jobs go back to QUEUED, and no token is issued twice. Only
the job service has tokens. The owners may then disagree in the same ways as after a crash: the sweep enqueues jobs that
are in no queue, an entry of a job that does not wait is dropped, and the first envelope of a job stays.
"""

from collections.abc import Callable

import msgspec

from holdfast import limits
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.lifecycle import QUEUED, RUNNING, State
from holdfast.journal.archive import JournalArchive
from holdfast.journal.disk import Disk
from holdfast.journal.new_journal import Origin, begin
from holdfast.topologies.microservices.services.owner_journal import StateMachine, read_into
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from holdfast.topologies.microservices.state.record_events import Move, RecordDecision

#: The empty machine of each owner, by directory name.
OWNERS: dict[str, Callable[[], StateMachine]] = {
    "job": records.Records,
    "queue": lambda: waiting_jobs.WaitingJobs(limits.AGING_MS_DEFAULT),
    "result": lambda: envelopes.Envelopes(envelopes.EnvelopeRetention.beyond()),
}


class OwnerState(msgspec.Struct, frozen=True):
    """A machine into which all data of a journal was replayed."""

    machine: StateMachine
    position: int
    last_ms: int

    @property
    def digest(self) -> int:
        """The digest of the machine."""
        return self.machine.digest

    def counts(self) -> dict[str, int]:
        """Returns the number of entries, by state if they have one."""
        machine = self.machine
        if isinstance(machine, records.Records):
            counted = {state.name: machine.state.listing.count([state]) for state in State}
            return {name: count for name, count in counted.items() if count}
        if isinstance(machine, waiting_jobs.WaitingJobs):
            return {"WAITING": len(machine)}
        assert isinstance(machine, envelopes.Envelopes)
        return {"ENDED": len(machine)}


def owner_state(
    kind: str, archive: JournalArchive, progress: Callable[[int, int], None], digest_version: int = DIGEST_VERSION
) -> OwnerState:
    """Replays all data and compares the digest after each frame; a `JournalError` names the problem.

    The digest of the state then has the requested version, whatever the versions of the files are.
    """
    machine = OWNERS[kind]()
    with archive.pin(1):
        view = archive.view()
        last_ms = read_into(machine, archive, view, progress)
    machine.rehash(digest_version)
    return OwnerState(machine, view.end_position, last_ms)


def restore_owner(state: OwnerState, target: Disk, *, now_ms: int, cluster_id: bytes, epoch: int) -> int:
    """Starts a journal in an empty directory with this state; returns the number of jobs that were running."""
    machine, at_ms = state.machine, max(now_ms, state.last_ms)
    token = machine.state.next_token if isinstance(machine, records.Records) else 0
    origin = Origin.at(at_ms, cluster_id=cluster_id, position=state.position, token=token, epoch=epoch)
    ended = 0
    if isinstance(machine, records.Records):
        ended = _end_grants(machine, at_ms)
        machine.state.next_token = origin.floor + 1
    begin(
        target,
        origin,
        machine.image(),
        digest_version=machine.digest_version,
        digest=machine.digest,
        log_time_ms=at_ms,
    )
    return ended


def _end_grants(machine: records.Records, now_ms: int) -> int:
    """Moves every running job to QUEUED, without counting a failure or a loss."""
    running = [job.id for job in machine.state.jobs.values() if job.state == RUNNING]
    for job_id in running:
        decided = machine.move(Move(job_id, State(RUNNING), State(QUEUED), reason="restored"), now_ms)
        assert isinstance(decided, RecordDecision)
        assert decided.event is not None
        machine.apply(decided.event)
    return len(running)
