"""Rules about schedules: one job for every tick.

- Ticks are known by their UTC time. What was triggered by hand is no tick.
- A tick without a job has its reason if the store says that it was skipped or missed, by itself or passed over together
  with the tick before or after it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally
from holdfast.lab.history.records import Schedule, TickFact

FIRED, TRIGGERED = "fired", "triggered"


def _is_offered(history: History, tally: Tally) -> bool:
    if not history.run.schedules and "schedule" in history.run.calls:
        tally.doubt = "no schedule was seen from its first tick to its last"
    elif not history.run.schedules:
        tally.not_offered = "there was no schedule"
    elif "ticks" not in history.run.keeps:
        tally.not_offered = "the store keeps no ticks"
    elif not history.ticks and not history.jobs:
        tally.doubt = "the store was not read, or has no jobs"
    return not (tally.not_offered or tally.doubt)


def _by_tick(history: History) -> dict[tuple[str, int], list[TickFact]]:
    found: defaultdict[tuple[str, int], list[TickFact]] = defaultdict(list)
    for tick in history.ticks:
        if tick.outcome != TRIGGERED:
            found[tick.schedule, tick.tick_ms].append(tick)
    return found


def tick_doubled(history: History, tally: Tally) -> Iterator[Suspect]:
    """A tick of a schedule has two jobs."""
    if not _is_offered(history, tally):
        return
    fired: Counter[str] = Counter()
    for (schedule, tick_ms), ticks in _by_tick(history).items():
        made = [tick for tick in ticks if tick.outcome == FIRED]
        tally.cases += bool(made)
        fired[schedule] += len(made)
        if len(made) > 1:
            ids = tuple(tick.job_id for tick in made)
            yield Suspect(
                ids[-1], f"is of tick {tick_ms} of {schedule}, and so is {ids[0]}", ids[:-1], records=tuple(made)
            )
    by_hand = {tick.job_id for tick in history.ticks if tick.outcome == TRIGGERED}
    jobs: Counter[str] = Counter(
        job.schedule for job in history.jobs.values() if job.schedule and job.id not in by_hand and not job.retry_of
    )
    for schedule, count in jobs.items():
        if count > fired[schedule] > 0 and schedule not in history.traced_schedules:
            yield Suspect("", f"{schedule} has {count} jobs for {fired[schedule]} ticks")


def tick_missed(history: History, tally: Tally) -> Iterator[Suspect]:
    """A tick of a schedule has no job of its own, and no reason."""
    if not _is_offered(history, tally):
        return
    by_tick = _by_tick(history)
    for schedule in history.run.schedules:
        yield from _silent(schedule, by_tick, tally)
    owner: dict[str, TickFact] = {}
    for tick in history.ticks:
        if tick.outcome != FIRED or not tick.job_id:
            continue
        first = owner.setdefault(tick.job_id, tick)
        if history.jobs and tick.job_id not in history.jobs:
            yield Suspect(
                tick.job_id, f"was made by tick {tick.tick_ms} of {tick.schedule} and is not there", records=(tick,)
            )
        elif first.tick_ms != tick.tick_ms:
            text = f"is of tick {first.tick_ms} of {tick.schedule}, so tick {tick.tick_ms} has none of its own"
            yield Suspect(tick.job_id, text, records=(first, tick))


def _silent(schedule: Schedule, by_tick: dict[tuple[str, int], list[TickFact]], tally: Tally) -> Iterator[Suspect]:
    """Ticks that the store says nothing of, unless a neighbour that it speaks of has passed them over."""
    spoken = sorted(tick_ms for name, tick_ms in by_tick if name == schedule.name and _is_tick(schedule, tick_ms))
    before_ms, before = schedule.first_ms - schedule.every_ms, list[TickFact]()
    for tick_ms in spoken:
        ticks = by_tick[schedule.name, tick_ms]
        tally.cases += any(tick.outcome == FIRED for tick in ticks)
        yield from _unexplained(schedule, before_ms, tick_ms, [*before, *ticks])
        before_ms, before = tick_ms, ticks
    yield from _unexplained(schedule, before_ms, schedule.last_ms + schedule.every_ms, before)


def _is_tick(schedule: Schedule, tick_ms: int) -> bool:
    is_within = schedule.first_ms <= tick_ms <= schedule.last_ms
    return is_within and (tick_ms - schedule.first_ms) % schedule.every_ms == 0


def _unexplained(schedule: Schedule, before_ms: int, after_ms: int, around: list[TickFact]) -> Iterator[Suspect]:
    """What lies between two ticks that the store speaks of, if they do not say that they passed so many over."""
    count = (after_ms - before_ms) // schedule.every_ms - 1
    if count > sum(tick.passed for tick in around):
        text = f"{schedule.name} has no job and no reason for {count} ticks, from {before_ms + schedule.every_ms} on"
        yield Suspect("", text, records=tuple(around))


RULES = (
    Rule("tick doubled", "no two jobs for a tick", "no tick was fired", tick_doubled),
    Rule("tick missed", "a job or a reason for every tick", "no tick was fired", tick_missed),
)
