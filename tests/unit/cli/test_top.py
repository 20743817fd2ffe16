"""The findings and the output of `holdfast top`, on terminals of every size."""

import io

import msgspec
import pytest
from rich.console import Console

from holdfast.cli.health import findings, verdict
from holdfast.cli.top_numbers import TopSample, Trend, grouped
from holdfast.cli.top_view import TopFrame, lines, screen
from holdfast.core.lifecycle import DONE, FAILED
from holdfast.core.model import QueueMode, Template
from holdfast.ports import JobView, QueueView, Stats, WorkerView

STATS = Stats(
    position=9,
    now_ms=1_000_000,
    states={"QUEUED": 0, "RUNNING": 0, "DONE": 100, "FAILED": 0, "CANCELED": 0},
    bytes_held=0,
    epoch=1,
    cluster_id="c",
    workers=1,
    slots=4,
    leases=0,
)
QUEUE = QueueView("images", QueueMode.OPEN, "", ready=5, delayed=2, running=1, oldest_age_ms=1_500)
WORKER = WorkerView("anna", ["resize"], [], 4, 1, is_draining=False, is_streaming=True, heard_ms_ago=100)


def failed(reason: str, *, job_type: str = "mail", at_ms: int = 999_000, number: int = 1) -> JobView:
    """Returns a failed job."""
    job_id = f"00000000-0000-4000-8000-{number:012}"
    return JobView(job_id, Template(type=job_type), FAILED, 0, 1, at_ms, 0, False, reason, 1, None)


def look(
    *, queues: tuple[QueueView, ...] = (), workers: tuple[WorkerView, ...] = (WORKER,), **more: object
) -> TopSample:
    """Returns a sample of a server with these queues, workers and numbers."""
    return TopSample(msgspec.structs.replace(STATS, **more), list(queues), list(workers), [])


def later(after_ms: int, **states: int) -> Stats:
    """Returns the numbers after this time."""
    return msgspec.structs.replace(STATS, now_ms=STATS.now_ms + after_ms, states={**STATS.states, **states})


def trend(*stats: Stats) -> Trend:
    """Returns the trend of several samples."""
    made = Trend()
    for one in stats or (STATS,):
        made.add(one)
    return made


def texts(seen: TopSample, over: Trend | None = None) -> list[str]:
    return [one.text for one in findings(seen, over or trend())]


def test_rates_are_differences_over_the_last_seconds() -> None:
    """A rate ignores changes that are older than a few seconds."""
    over = trend(STATS, later(60_000, DONE=5_000), later(64_000, DONE=5_400, FAILED=20))
    assert over.rate(DONE) == 100
    assert over.rate(FAILED) == 5
    assert over.rate(None) == 105
    assert over.steps(DONE) == [4_900, 400]


def test_a_rate_that_cannot_be_known_is_not_made_up() -> None:
    """A rate is unknown after one sample, after an eviction of jobs, and across a restart."""
    assert trend().rate(DONE) is None
    assert trend(STATS, later(1_000, DONE=40)).rate(DONE) is None
    restarted = msgspec.structs.replace(later(1_000, DONE=400), epoch=2)
    assert trend(STATS, restarted).rate(DONE) is None


def test_nothing_wrong_is_healthy() -> None:
    """A server with a worker is healthy, and also idle if it has no jobs."""
    assert verdict(look(), findings(look(), trend())) == "healthy, idle"
    busy = look(queues=(QUEUE,), states={"QUEUED": 7, "RUNNING": 1})
    assert verdict(busy, findings(busy, trend())) == "healthy"


def test_jobs_without_a_worker_are_bad() -> None:
    """Ready jobs without a connected worker are critical."""
    alone = TopSample(msgspec.structs.replace(STATS, workers=0), [QUEUE], [], [])
    assert texts(alone) == ["5 jobs could run, but no worker is connected"]
    assert verdict(alone, findings(alone, trend())) == "critical"


@pytest.mark.parametrize(
    ("queue", "text", "is_bad"),
    [
        ({"oldest_age_ms": 60_000}, "a job in queue images has waited for 1 min", False),
        ({"oldest_age_ms": 600_000}, "a job in queue images has waited for 10 min", True),
        (
            {"mode": QueueMode.PAUSED, "reason": "disk", "oldest_age_ms": 600_000},
            "queue images is paused and holds 7 jobs: disk",
            False,
        ),
        ({"mode": QueueMode.DRAINING}, "queue images is draining and accepts no jobs", False),
    ],
)
def test_old_jobs_and_closed_queues_are_findings(queue: dict[str, object], text: str, is_bad: bool) -> None:  # noqa: FBT001
    """Old jobs and closed queues are findings, but not the age of jobs in a paused queue."""
    seen = look(queues=(msgspec.structs.replace(QUEUE, **queue),))
    (found,) = findings(seen, trend())
    assert (found.text, found.is_bad) == (text, is_bad)


FULL = msgspec.structs.replace(WORKER, running=4)


@pytest.mark.parametrize(
    ("done", "age_ms", "word", "ended"),
    [
        (100, 30_000, "warning", "no job has ended in the last 20 s"),
        (100, 2_000, "busy", "no job has ended in the last 20 s"),
        (101, 30_000, "busy", "1 job has ended in the last 20 s"),
        (300, 30_000, "busy", "200 jobs have ended in the last 20 s"),
        (300, 700_000, "critical", "200 jobs have ended in the last 20 s"),
    ],
)
def test_slots_that_are_all_busy_while_jobs_wait_are_never_healthy(
    done: int, age_ms: int, word: str, ended: str
) -> None:
    """The finding shows how many jobs wait and for how long, and is a warning if no job ends."""
    waiting = msgspec.structs.replace(QUEUE, oldest_age_ms=age_ms)
    seen = look(queues=(waiting,), workers=(FULL,), states={"QUEUED": 7, "RUNNING": 4, "DONE": done})
    found = findings(seen, trend(STATS, later(20_000, DONE=done)))
    assert verdict(seen, found) == word
    assert any(
        one.text.startswith("all 4 slots are busy and 5 jobs wait, the oldest for") and one.text.endswith(ended)
        for one in found
    )


@pytest.mark.parametrize(
    ("looks", "word"),
    [
        ((STATS,), "busy"),
        ((STATS, later(200)), "busy"),
        ((STATS, later(4_999)), "busy"),
        ((STATS, later(5_000)), "warning"),
    ],
)
def test_jobs_are_stalled_only_after_a_window_in_which_none_ended(looks: tuple[Stats, ...], word: str) -> None:
    """A backlog that is observed for a moment is busy, however long its oldest job has waited."""
    waiting = msgspec.structs.replace(QUEUE, oldest_age_ms=30_000)
    seen = look(queues=(waiting,), workers=(FULL,), states={"QUEUED": 7, "RUNNING": 4})
    found = findings(seen, trend(*looks))
    assert verdict(seen, found) == word
    assert ("ended in the last" in found[0].text) == (len(looks) > 1)


def test_one_free_slot_is_enough_for_a_healthy_system() -> None:
    """A worker with more leases than slots does not hide the free slots of another one."""
    idle = msgspec.structs.replace(WORKER, worker_id="bob", running=0)
    overfull = msgspec.structs.replace(WORKER, running=8)
    seen = look(queues=(QUEUE,), workers=(overfull, idle), slots=8, leases=8, states={"QUEUED": 7, "RUNNING": 8})
    assert verdict(seen, findings(seen, trend())) == "healthy"


def test_types_that_no_worker_knows_are_bad() -> None:
    """Ready jobs of a type that no worker knows are critical, except in a paused queue."""
    queue = msgspec.structs.replace(QUEUE, types={"resize": 2, "old.name": 3})
    seen = look(queues=(queue,))
    assert texts(seen) == ["3 jobs wait of a type that no connected worker knows: old.name (3)"]
    assert verdict(seen, findings(seen, trend())) == "critical"
    paused = look(queues=(msgspec.structs.replace(queue, mode=QueueMode.PAUSED),))
    assert texts(paused) == ["queue images is paused and holds 7 jobs"]


def test_failures_of_a_minute_are_told_once_a_minute_was_watched() -> None:
    """Until the samples cover a minute, the line shows the time since which failures are counted."""
    early = trend(STATS, later(30_000, FAILED=2))
    late = trend(STATS, later(30_000, FAILED=2), later(61_000, FAILED=5))
    assert dict(TopFrame(look(), early, "there").numbers())["failed"].endswith("(2 since 00:16:40)")
    assert dict(TopFrame(look(), late, "there").numbers())["failed"].endswith("(3 in the last minute)")


def test_failures_count_by_their_share() -> None:
    """A small share of failures is no finding, and half of all jobs is a critical one."""
    few = trend(STATS, later(30_000, DONE=1_100, FAILED=10))
    some = trend(STATS, later(30_000, DONE=190, FAILED=10))
    most = trend(STATS, later(30_000, DONE=101, FAILED=10))
    assert texts(look(), few) == []
    assert texts(look(), some) == ["10 jobs failed in the last minute, 10% of those that ended"]
    assert findings(look(), most)[0].is_bad


def test_a_silent_worker_is_told() -> None:
    """A worker without a recent heartbeat is a finding."""
    silent = msgspec.structs.replace(WORKER, heard_ms_ago=25_000)
    assert texts(look(workers=(silent,))) == ["worker anna has sent no heartbeat for 25 s"]


def test_reasons_that_differ_in_names_and_numbers_are_one() -> None:
    """Groups are sorted by frequency, and each shows its newest failure."""
    jobs = [
        failed("timeout after 31 s", at_ms=3),
        failed("no route to 'a.example'", at_ms=1, job_type="fetch"),
        failed("no route to 'b.example'", at_ms=2, job_type="fetch"),
    ]
    assert [(one.type, one.jobs, one.newest.failure_reason) for one in grouped(jobs)] == [
        ("fetch", 2, "no route to 'b.example'"),
        ("mail", 1, "timeout after 31 s"),
    ]


def full() -> TopFrame:
    """Returns more data than fits on any screen, with control characters in it."""
    queues = [msgspec.structs.replace(QUEUE, name=f"queue-{number:02}", ready=number) for number in range(30)]
    workers = [msgspec.structs.replace(WORKER, worker_id=f"worker-{number:02}") for number in range(30)]
    jobs = [failed(f"\x1b[2J[bold]{number}", number=number, job_type=f"type-{number % 9}") for number in range(40)]
    return TopFrame(TopSample(STATS, queues, workers, jobs), trend(STATS, later(1_000, DONE=300)), "here")


@pytest.mark.parametrize(("width", "height"), [(200, 60), (120, 40), (80, 24), (40, 20), (20, 10)])
def test_the_screen_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    """The screen fits into every terminal and counts the rows that do not fit."""
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    rows = console.render_lines(screen(full(), height), pad=False)
    assert len(rows) <= height
    assert all(sum(part.cell_length for part in row) <= width for row in rows)
    shown = "\n".join("".join(part.text for part in row) for row in rows)
    assert "\x1b[2J" not in shown
    assert "healthy" in shown
    if height >= 24:
        assert "queue-29" in shown
        assert "more" in shown


def test_lines_for_files_leave_nothing_out() -> None:
    """Every queue, worker and reason has its line, without control characters of jobs."""
    made = lines(full())
    assert sum(line.startswith("queue ") for line in made) == 30
    assert sum(line.startswith("worker ") for line in made) == 30
    assert sum(line.startswith("failing ") for line in made) == 9
    assert not any("\x1b" in line for line in made)


def test_json_has_numbers_and_null_for_an_unknown_rate() -> None:
    """The JSON has numbers as numbers, and null for an unknown rate."""
    frame = TopFrame(look(queues=(QUEUE,)), trend(), "here")
    made = frame.json()
    assert made["health"] == "healthy, idle"
    assert made["rates_per_s"] == {"submitted": None, "done": None, "failed": None}
    assert made["queues"] == [
        {"queue": "images", "mode": "OPEN", "ready": 5, "delayed": 2, "running": 1, "oldest_age_ms": 1_500}
    ]
