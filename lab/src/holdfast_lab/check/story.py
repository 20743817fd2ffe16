"""The history of one job, as readable lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from holdfast_lab.check.calls import SUBMIT, Call
from holdfast_lab.check.history import History
from holdfast_lab.history.records import (
    CANCELED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    Answered,
    Began,
    Broken,
    DamageFact,
    EndFact,
    GrantFact,
    JobFact,
    JobSnapshot,
    JobSpec,
    Lost,
    Record,
    Refused,
    TickFact,
)

STATES = {QUEUED: "QUEUED", RUNNING: "RUNNING", DONE: "DONE", FAILED: "FAILED", CANCELED: "CANCELED"}
_STORE = "store"
#: Faults that are further from a job's history than this explain nothing.
_NEAR_US = 1_000_000
_FAULTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a history: the monotonic time (None for the state of the store at the end), the actor, the text."""

    at_us: int | None
    who: str
    what: str
    record: Record


def state_name(state: int) -> str:
    return STATES.get(state, f"state {state}")


def story(
    history: History,
    job_ids: Iterable[str],
    names: Iterable[str] = (),
    ops: Iterable[str] = (),
    records: Iterable[Record] = (),
) -> list[Line]:
    """Returns all records of these jobs in order of time; the state of the store comes last."""
    ids = set(filter(None, job_ids))
    wanted = {*filter(None, names), *filter(None, (history.name_of(one) for one in ids))}
    lines = [line for call in _calls(history, ids, wanted, set(ops)) for line in _of_call(call, ids, wanted)]
    for job_id in ids:
        lines += _of_attempts(history, job_id)
    times = [line.at_us for line in lines if line.at_us is not None]
    if times:
        lines += _of_faults(history, min(times), max(times))
    lines.sort(key=lambda line: inf if line.at_us is None else line.at_us)
    for job_id in sorted(ids):
        lines += _of_store(history, job_id)
    shown = {id(line.record) for line in lines}
    return lines + [line for record in records if id(record) not in shown for line in _of_record(record)]


def _calls(history: History, ids: set[str], names: set[str], ops: set[str]) -> list[Call]:
    found: dict[str, Call] = {op: history.calls[op] for op in ops if op in history.calls}
    for name in names:
        found |= {ask.call.asked.op: ask.call for ask in history.asks_of.get(name, ())}
    for job_id in ids:
        found |= {ask.call.asked.op: ask.call for ask in history.told.get(job_id, ())}
        found |= {call.asked.op: call for call in history.calls_on.get(job_id, ())}
        found |= {one.call.asked.op: one.call for one in history.readings.get(job_id, ())}
        if job_id in history.retried:
            found[history.retried[job_id].asked.op] = history.retried[job_id]
    return list(found.values())


def _of_call(call: Call, ids: set[str], names: set[str]) -> Iterator[Line]:
    asked, answer = call.asked, call.answer
    chosen = [
        index
        for index, one in enumerate(asked.wanted)
        if one.name in names or (one.id in ids) or _told(call, index, ids)
    ]
    what = f"{asked.call} {_wanted(asked.wanted, chosen)}" if asked.call == SUBMIT else f"{asked.call} {asked.job_id}"
    yield Line(asked.at_us, asked.client, f"sends over {asked.via}: {what.rstrip()} [{asked.op}]", asked)
    match answer:
        case Answered():
            yield Line(answer.at_us, asked.client, f"receives: {_answer(answer, chosen, ids)} [{asked.op}]", answer)
        case Refused():
            yield Line(answer.at_us, asked.client, f"is refused: {answer.code} {answer.reason} [{asked.op}]", answer)
        case Lost():
            yield Line(answer.at_us, asked.client, f"gets no response: {answer.code or 'lost'} [{asked.op}]", answer)


def _told(call: Call, index: int, ids: set[str]) -> bool:
    answered = call.answered
    return answered is not None and index < len(answered.ids) and answered.ids[index] in ids


def _wanted(wanted: list[JobSpec], chosen: list[int]) -> str:
    shown = "; ".join(_spelt(wanted[index]) for index in chosen)
    return f"{shown} (of {len(wanted)})" if len(wanted) > 1 else shown


def _spelt(one: JobSpec) -> str:
    facts = {"id": one.id, "key": one.key, "digest": one.digest, "delay_ms": one.delay_ms, "fails": one.fails}
    return " ".join([one.name, *(f"{name}={value}" for name, value in facts.items() if value)])


def _answer(answer: Answered, chosen: list[int], ids: set[str]) -> str:
    parts = [
        f"refused {answer.refusals[index]}"
        if index in answer.refusals
        else f"id {answer.ids[index]}{' (existing)' if index in answer.existing else ''}"
        for index in chosen
        if index in answer.refusals or index < len(answer.ids)
    ]
    if not chosen:
        parts += [f"id {one}" for one in answer.ids]
    parts += [_seen(one) for one in answer.seen if one.id in ids]
    return ", ".join(parts) or "done"


def _seen(one: JobSnapshot) -> str:
    facts = {"attempts": one.attempts, "run": one.run, "reason": one.reason}
    return " ".join([one.id, state_name(one.state), *(f"{name}={value}" for name, value in facts.items() if value)])


def _of_attempts(history: History, job_id: str) -> Iterator[Line]:
    for one in history.begun.get(job_id, ()):
        yield Line(one.at_us, f"worker {one.worker}", _began(one), one)
        ended = history.ended.get(one.run)
        if ended is not None:
            yield Line(ended.at_us, f"worker {one.worker}", f"run {one.run} ended {ended.outcome}", ended)


def _began(one: Began) -> str:
    wall = f" at {one.wall_ms} ms of the wall clock" if one.wall_ms else ""
    return f"begins {one.job_id}, attempt {one.attempt} under token {one.token}, as run {one.run}{wall}"


def _of_faults(history: History, from_us: int, until_us: int) -> Iterator[Line]:
    near = (
        one for one in history.faults.fired if one.at_us <= until_us + _NEAR_US and one.until_us >= from_us - _NEAR_US
    )
    for _, one in zip(range(_FAULTS_MAX), near, strict=False):
        yield Line(one.at_us, "fault", _broken(one), one)


def _broken(one: Broken) -> str:
    return f"{one.kind} {one.target} for {max(0, one.until_us - one.at_us) / 1e6:.3f} s {one.note}".rstrip()


def _of_store(history: History, job_id: str) -> Iterator[Line]:
    facts = [history.jobs[job_id]] if job_id in history.jobs else []
    for job in [*facts, *(one for one in history.twins if one.id == job_id)]:
        yield Line(None, job.store or _STORE, _job(job), job)
    for grant in history.grants.get(job_id, ()):
        yield Line(None, grant.store or _STORE, _grant(grant), grant)
    for end in history.ends.get(job_id, ()):
        yield Line(None, _STORE, _end(end), end)
    for tick in history.ticks_of_job.get(job_id, ()):
        yield Line(None, _STORE, tick_text(tick), tick)
    for damage in history.damages:
        if damage.job_id == job_id:
            yield Line(None, _STORE, f"damage: {damage.text}", damage)


def _of_record(record: Record) -> Iterator[Line]:
    match record:
        case TickFact():
            yield Line(None, _STORE, tick_text(record), record)
        case DamageFact():
            yield Line(None, _STORE, f"damage: {record.text}", record)


def _job(job: JobFact) -> str:
    facts = {
        "name": job.name,
        "number": job.number,
        "key": job.key,
        "grants": job.grants,
        "token": job.token,
        "run": job.run,
        "not_before_ms": job.not_before_ms,
        "schedule": job.schedule,
        "retry_of": job.retry_of,
    }
    shown = " ".join(f"{name}={value}" for name, value in facts.items() if value)
    return f"has {job.id} {state_name(job.state)} {shown}".rstrip()


def _grant(grant: GrantFact) -> str:
    at = f" at {grant.at_ms} ms" if grant.at_ms else ""
    return f"granted {grant.job_id} under token {grant.token}, place {grant.place}{at}"


def _end(end: EndFact) -> str:
    token = f" under token {end.token}" if end.token else ""
    return f"accepted the end {state_name(end.state)} of {end.job_id}{token}"


def tick_text(tick: TickFact) -> str:
    """Describes one tick as stored."""
    job = f", job {tick.job_id}" if tick.job_id else ""
    return f"tick {tick.tick_ms} of {tick.schedule}: {tick.outcome}{job}"
