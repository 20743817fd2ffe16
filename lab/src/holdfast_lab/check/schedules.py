"""Rules about schedules: one job for every tick.

- Ticks are identified by their UTC time. A job that was triggered by hand is no tick.
- A tick without a job has a reason if the store shows it as skipped or missed, or as passed over by the tick before or
  after it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import NOT_READ, Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import FIRED, TRIGGERED, Schedule, TickFact


def _is_offered(history: History, tally: Tally) -> bool:
    if not history.run.schedules and "schedule" in history.run.calls:
        tally.doubt = "no schedule was seen from its first tick to its last"
    elif not history.run.schedules:
        tally.not_offered = "there was no schedule"
    elif "ticks" not in history.run.keeps:
        tally.not_offered = "the store keeps no ticks"
    elif not history.ticks and not history.jobs:
        tally.doubt = NOT_READ
    return not (tally.not_offered or tally.doubt)


def _by_tick(history: History) -> dict[tuple[str, int], list[TickFact]]:
    found: defaultdict[tuple[str, int], list[TickFact]] = defaultdict(list)
    for tick in history.ticks:
        if tick.outcome != TRIGGERED:
            found[tick.schedule, tick.tick_ms].append(tick)
    return found


def tick_doubled(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds ticks with two jobs, and jobs that were created between two ticks."""
    if not _is_offered(history, tally):
        return
    planned = {one.name: one for one in history.run.schedules}
    fired: Counter[str] = Counter()
    for (name, tick_ms), ticks in _by_tick(history).items():
        made = [tick for tick in ticks if tick.outcome == FIRED]
        tally.cases += bool(made)
        fired[name] += len(made)
        ids = tuple(tick.job_id for tick in made)
        if len(made) > 1:
            text = f"is of tick {tick_ms} of {name}, and so is {ids[0]}"
            yield SuspectedViolation(ids[-1], text, ids[:-1], records=tuple(made))
        elif made and name in planned and _is_between(planned[name], tick_ms):
            yield SuspectedViolation(ids[0], f"was made at {tick_ms}, which is no tick of {name}", records=tuple(made))
    by_hand = {tick.job_id for tick in history.ticks if tick.outcome == TRIGGERED}
    jobs: Counter[str] = Counter(
        job.schedule for job in history.jobs.values() if job.schedule and job.id not in by_hand and not job.retry_of
    )
    for name, count in jobs.items():
        if count > fired[name] > 0 and name not in history.traced_schedules:
            yield SuspectedViolation("", f"{name} has {count} jobs for {fired[name]} ticks")


def tick_missed(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds ticks with neither a job of their own nor a reason."""
    if not _is_offered(history, tally):
        return
    by_tick = _by_tick(history)
    for schedule in history.run.schedules:
        yield from _silent(schedule, by_tick, tally)
    owner: dict[str, TickFact] = {}
    for tick in history.ticks:
        if tick.outcome == FIRED and (tick.job_id or tick.schedule in history.traced_schedules):
            reason = _without_job(history, tick, owner.setdefault(tick.job_id, tick))
            if reason:
                yield SuspectedViolation(tick.job_id, reason, records=(owner[tick.job_id], tick))


def _without_job(history: History, tick: TickFact, owner: TickFact) -> str:
    """Returns why a tick that fired has no job of its own; `owner` is the first tick that names the same job."""
    if not tick.job_id:
        return f"tick {tick.tick_ms} of {tick.schedule} fired and made no job"
    if history.jobs and tick.job_id not in history.jobs:
        return f"was made by tick {tick.tick_ms} of {tick.schedule} but is missing"
    if (owner.schedule, owner.tick_ms) != (tick.schedule, tick.tick_ms):
        return f"is of tick {owner.tick_ms} of {owner.schedule}, so tick {tick.tick_ms} has no job of its own"
    return ""


def _silent(
    schedule: Schedule, by_tick: dict[tuple[str, int], list[TickFact]], tally: Tally
) -> Iterator[SuspectedViolation]:
    """Finds ticks that are not in the store, unless a neighbour in the store has passed them over.

    A tick that was counted as passed over by one neighbour is not counted for the other.
    """
    spoken = sorted(tick_ms for name, tick_ms in by_tick if name == schedule.name and _is_tick(schedule, tick_ms))
    before_ms, before, left = schedule.first_ms - schedule.every_ms, list[TickFact](), 0
    for tick_ms in (*spoken, schedule.last_ms + schedule.every_ms):
        ticks = by_tick.get((schedule.name, tick_ms), []) if tick_ms <= schedule.last_ms else []
        tally.cases += any(tick.outcome == FIRED for tick in ticks)
        count = (tick_ms - before_ms) // schedule.every_ms - 1
        passed = sum(tick.passed for tick in ticks)
        if count > left + passed:
            text = f"has no job and no reason for {count} ticks, from {before_ms + schedule.every_ms} on"
            yield SuspectedViolation("", f"{schedule.name} {text}", records=(*before, *ticks))
        before_ms, before, left = tick_ms, ticks, max(0, passed - max(0, count - left))


def _is_within(schedule: Schedule, tick_ms: int) -> bool:
    return schedule.first_ms <= tick_ms <= schedule.last_ms


def _is_tick(schedule: Schedule, tick_ms: int) -> bool:
    return _is_within(schedule, tick_ms) and (tick_ms - schedule.first_ms) % schedule.every_ms == 0


def _is_between(schedule: Schedule, tick_ms: int) -> bool:
    return _is_within(schedule, tick_ms) and not _is_tick(schedule, tick_ms)


RULES = (
    Rule("tick doubled", "no two jobs for a tick", "no tick was fired", tick_doubled),
    Rule("tick missed", "a job or a reason for every tick", "no tick was fired", tick_missed),
)
