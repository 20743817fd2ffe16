"""The data of a run's picture: acknowledged, ended and lost over time, and the faults of each target."""

import re
from collections.abc import Iterable

import msgspec

from holdfast_lab.history.records import Answered, Asked, Broken, Ended, Lost, Record, Run

_BINS = 240
_BIN_S_MIN = 0.5
_LANES_MAX = 16
OTHERS = "others"
_ROAD = re.compile(r"road of the (\S+)")
_TIMES = re.compile(r", (\d+) times")
#: A name, maybe after its role.
_SOMEBODY = re.compile(r"(?:[a-z]\S* )?([a-z]\S*)")


class Bar(msgspec.Struct, frozen=True):
    """One fault, in seconds since the run began."""

    lane: str
    kind: str
    from_s: float
    until_s: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The drawn data; the rates are per second, one for each `bin_s`."""

    bin_s: float
    acknowledged: list[float]
    ended: list[float]
    lost: list[float]
    bars: list[Bar]
    lanes: list[str]
    #: When the faults were over, and when all jobs had ended; 0: never.
    peace_s: float = 0.0
    drained_s: float = 0.0


class _Collected:
    """The records that are drawn."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._submits: set[str] = set()
        self.acknowledged: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.lost: list[tuple[int, int]] = []
        self.broken: list[Broken] = []
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        match record:
            case Asked(call="submit"):
                self._submits.add(record.op)
            case Answered() if record.op in self._submits:
                fresh = sum(map(bool, record.ids)) - len(record.existing)
                self.acknowledged.append((record.at_us, fresh))
            case Ended():
                self.ended.append((record.at_us, 1))
            case Lost():
                self.lost.append((record.at_us, 1))
            case Broken():
                self.broken.append(record)
            case _:
                pass

    def last_us(self) -> int:
        """Returns the end of the last job or fault."""
        events = [at_us for at_us, _ in (*self.acknowledged, *self.ended)]
        return max((*events, *(one.until_us for one in self.broken)), default=0)


def timeline_of(run: Run, records: Iterable[Record]) -> Timeline:
    """Computes the timeline in one pass over the records."""
    collected = _Collected(records)
    last_us = max(run.drained_us, collected.last_us())
    long_s = max((last_us - run.begun_us) / 1e6, _BIN_S_MIN)
    bin_s = max(long_s / _BINS, _BIN_S_MIN)
    count = int(long_s / bin_s) + 1

    def since_s(at_us: int) -> float:
        return max(0.0, (at_us - run.begun_us) / 1e6) if at_us else 0.0

    def rates(events: Iterable[tuple[int, int]]) -> list[float]:
        found = [0.0] * count
        for at_us, weight in events:
            found[min(int(since_s(at_us) / bin_s), count - 1)] += weight / bin_s
        return found

    bars, lanes = _in_lanes(
        [
            Bar(lane, one.kind, since_s(one.at_us), since_s(one.until_us))
            for one in collected.broken
            for lane in lanes_of(one)
        ]
    )
    return Timeline(
        bin_s=bin_s,
        acknowledged=rates(collected.acknowledged),
        ended=rates(collected.ended),
        lost=rates(event for event in collected.lost if event[0] <= last_us),
        bars=bars,
        lanes=lanes,
        peace_s=since_s(run.faults_ended_us),
        drained_s=since_s(run.drained_us),
    )


def _in_lanes(bars: list[Bar]) -> tuple[list[Bar], list[str]]:
    """Returns the bars and the names of their lanes; surplus lanes are merged into the last one."""
    lanes = sorted({bar.lane for bar in bars})
    if len(lanes) <= _LANES_MAX:
        return bars, lanes
    kept = lanes[: _LANES_MAX - 1]
    return [bar if bar.lane in kept else msgspec.structs.replace(bar, lane=OTHERS) for bar in bars], [*kept, OTHERS]


def lanes_of(broken: Broken) -> list[str]:
    """Returns the names of the targets without further details; the kind if there is no particular target."""
    found = []
    for part in broken.target.partition(":")[0].split(", "):
        if road := _ROAD.fullmatch(part):
            found.append(f"road of {road[1]}")
        elif somebody := _SOMEBODY.fullmatch(part):
            found.append(somebody[1])
    return found or [broken.kind]


def kills_of(broken: Broken) -> int:
    """Returns how many processes it has killed."""
    if "kill" not in broken.kind:
        return 0
    times = _TIMES.search(broken.target)
    return len(lanes_of(broken)) * (int(times[1]) if times else 1)
