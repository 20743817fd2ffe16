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
_TICKS_SHOWN = 10


def _is_offered(history: History, tally: Tally) -> bool:
    if not history.run.schedules:
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
    gap: list[int] = []
    before: tuple[TickFact, ...] = ()
    for tick_ms in range(schedule.first_ms, schedule.last_ms + 1, schedule.every_ms):
        ticks = tuple(by_tick.get((schedule.name, tick_ms), ()))
        if not ticks:
            gap.append(tick_ms)
            continue
        tally.cases += any(tick.outcome == FIRED for tick in ticks)
        yield from _unexplained(schedule.name, gap, before, ticks)
        gap, before = [], ticks
    yield from _unexplained(schedule.name, gap, before, ())


def _unexplained(
    schedule: str, gap: list[int], before: tuple[TickFact, ...], after: tuple[TickFact, ...]
) -> Iterator[Suspect]:
    if len(gap) > sum(tick.passed for tick in (*before, *after)):
        more = f" and {len(gap) - _TICKS_SHOWN} more" if len(gap) > _TICKS_SHOWN else ""
        times = ", ".join(map(str, gap[:_TICKS_SHOWN])) + more
        yield Suspect("", f"{schedule} has no job and no reason for tick {times}", records=(*before, *after))


RULES = (
    Rule("tick doubled", "no two jobs for a tick", "no tick was fired", tick_doubled),
    Rule("tick missed", "a job or a reason for every tick", "no tick was fired", tick_missed),
)
