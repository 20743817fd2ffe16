"""The microservices topology: six services, three of which are owners with durable state.

Owners trim the events that their snapshots contain, but only the whole journal shows all leases. So the journals are
archived.
"""

from functools import partial
from pathlib import Path

from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import JobRecord
from holdfast.errors import HoldfastError
from holdfast.topologies.microservices.state import envelopes, records, waiting_jobs
from holdfast_lab.history.records import DamageFact, JobFact, Record
from holdfast_lab.torture.arenas.archive import Archives
from holdfast_lab.torture.arenas.options import HEARTBEAT_MS, SLOTS, WORKER_TIMEOUT_MS, options_of
from holdfast_lab.torture.arenas.owner_journals import OwnerJournal, read_owner
from holdfast_lab.torture.arenas.record_facts import RecordFacts
from holdfast_lab.torture.arenas.up_arena import ArenaPlan, UpArena
from holdfast_lab.torture.jobs import run_of

_STORE = "services"
_OWNERS = ("job", "queue", "result")
_ROLES = ("gateway", "job", "queue", "coordinator", "result", "worker")
#: All services but the worker listen.
_PORTS = 5
_AGING_MS = 60_000
_EVERYTHING = envelopes.EnvelopeRetention(age_ms=1 << 45, envelopes=1 << 40, bytes=1 << 50)


def microservices(folder: Path, app: str) -> UpArena:
    """Returns an arena of six services; no store keeps the order of submits, so order is not checked here."""
    options = {
        "slots": str(SLOTS),
        "heartbeat-ms": str(HEARTBEAT_MS),
        "worker-timeout-ms": str(WORKER_TIMEOUT_MS),
        # The least that is allowed: owners make a snapshot, and trim, as often as possible.
        "snapshot-bytes": str(64 << 10),
    }
    return UpArena(
        folder,
        app,
        ArenaPlan(
            topology="microservices",
            keeps=frozenset({"grants"}),
            results_apart=True,
            has_schedules=False,
            arguments=options_of(options),
            ports=_PORTS,
            doors=1,
            seats=[(role, role) for role in _ROLES],
            seat_of=_seat_of,
            read=_read,
            journals=_OWNERS,
            is_thrifty=True,
        ),
    )


def _seat_of(words: list[str]) -> tuple[str, str] | None:
    return (words[1], words[1]) if words[:1] == ["service"] else None


def _read(data: Path, archives: Archives) -> list[Record]:
    """Reads the facts of the three owners, and compares them."""
    jobs, queue, results = ((data / name, archives.of(name)) for name in _OWNERS)
    try:
        kept = read_owner(*jobs, records.Records, DIGEST_VERSION)
        stored = read_owner(*results, lambda: envelopes.Envelopes(_EVERYTHING), DIGEST_VERSION)
        waiting = read_owner(*queue, lambda: waiting_jobs.WaitingJobs(_AGING_MS), DIGEST_VERSION)
    except (HoldfastError, AssertionError) as error:
        return [DamageFact(f"an owner cannot be read: {error}")]
    facts = RecordFacts(kept.machine, _STORE, partial(_run_in, stored))
    for event in kept.events:
        facts.take(event)
    damage = [*kept.damage, *stored.damage, *waiting.damage, *facts.damage]
    return [*facts.records(), *(DamageFact(text) for text in damage), *_differences(facts, stored, waiting)]


def _run_in(stored: OwnerJournal[envelopes.Envelopes], job: JobRecord) -> str:
    envelope = stored.machine.find(job.id)
    return run_of(envelope.output) if envelope is not None and envelope.output else ""


def _differences(
    facts: RecordFacts,
    stored: OwnerJournal[envelopes.Envelopes],
    waiting: OwnerJournal[waiting_jobs.WaitingJobs],
) -> list[Record]:
    """Returns contradictions between the owners, once every job has ended."""
    found: list[Record] = []
    jobs = [fact for fact in facts.records() if isinstance(fact, JobFact)]
    for fact in jobs:
        envelope = stored.machine.find(fact.id)
        if fact.state in TERMINAL and (envelope is None or envelope.state != fact.state):
            said = "nothing" if envelope is None else f"the state {envelope.state}"
            found.append(DamageFact(f"its record has the state {fact.state}, its result {said}", fact.id))
    if len(waiting.machine) and all(fact.state in TERMINAL for fact in jobs):
        found.append(DamageFact(f"every job has ended, and {len(waiting.machine)} wait in line"))
    return found
