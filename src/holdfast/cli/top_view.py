"""The output of `holdfast top`: a screen for terminals, lines for files, and JSON for programs."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.health import Finding, findings, verdict
from holdfast.cli.text import as_clock, as_span, printable
from holdfast.cli.top_numbers import FailureGroup, TopSample, Trend, grouped
from holdfast.core.lifecycle import DONE, FAILED
from holdfast.core.model import QueueMode
from holdfast.ports import JobView, QueueView, WorkerView

#: Lines that are not rows of tables: title, numbers, the curve, and the keys.
_FIXED_LINES = 6
_TABLE_LINES = 2
_ROWS_LEAST = 2
_BARS = " ▁▂▃▄▅▆▇█"
_STYLES = {"critical": "bold red", "warning": "bold yellow"}
_FINDINGS_SHOWN = 4


class TopFrame:
    """All data of one screen."""

    def __init__(self, look: TopSample, trend: Trend, place: str) -> None:
        self.look, self.trend, self.place = look, trend, place
        self.findings = findings(look, trend)
        self.verdict = verdict(look, self.findings)
        self.groups = grouped(look.failed)
        self.newest = sorted(look.failed, key=lambda job: -job.finished_ms)

    def numbers(self) -> list[tuple[str, str]]:
        """Returns the most important numbers."""
        stats, queues = self.look.stats, self.look.queues
        oldest = max((queue for queue in queues if queue.ready), key=lambda queue: queue.oldest_age_ms, default=None)
        delayed = sum(queue.delayed for queue in queues)
        return [
            ("waiting", f"{sum(queue.ready for queue in queues):,}{f' (+{delayed:,} delayed)' if delayed else ''}"),
            ("oldest job", f"{as_span(oldest.oldest_age_ms)} in {oldest.name}" if oldest else "-"),
            ("running", f"{stats.leases:,} on {stats.slots:,} slots"),
            ("submitted", _rate(self.trend.rate(None))),
            ("done", _rate(self.trend.rate(DONE))),
            ("failed", f"{_rate(self.trend.rate(FAILED))} ({self.trend.grown(FAILED):,} {self._watched()})"),
        ]

    def _watched(self) -> str:
        return "in the last minute" if self.trend.is_minute else f"since {as_clock(self.trend.since_ms)[:8]}"

    def json(self) -> dict[str, object]:
        """Returns the same data for programs."""
        stats = self.look.stats
        rates = {"submitted": self.trend.rate(None), "done": self.trend.rate(DONE), "failed": self.trend.rate(FAILED)}
        return {
            "at_ms": stats.now_ms,
            "health": self.verdict,
            "findings": [{"is_bad": one.is_bad, "text": one.text} for one in self.findings],
            "states": stats.states,
            "rates_per_s": rates,
            "workers": [
                {"worker_id": one.worker_id, "running": one.running, "slots": one.slots} for one in self.look.workers
            ],
            "queues": [_queue_json(one) for one in self.look.queues],
            "failing": [
                {"type": one.type, "jobs": one.jobs, "reason": one.newest.failure_reason, "job_id": one.newest.id}
                for one in self.groups
            ],
        }


def _queue_json(queue: QueueView) -> dict[str, object]:
    return {
        "queue": queue.name,
        "mode": queue.mode.name,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "running": queue.running,
        "oldest_age_ms": queue.oldest_age_ms,
    }


def lines(frame: TopFrame) -> list[str]:
    """Returns the lines for a file or a pipe; nothing is left out."""
    made = [f"{frame.verdict.upper()} {frame.place}", *(f"! {one.text}" for one in frame.findings)]
    made += [f"{label}: {value}" for label, value in frame.numbers()]
    made += [f"queue {' '.join(filter(None, _queue_row(one)))}" for one in frame.look.queues]
    made += [f"worker {' '.join(_worker_row(one))}" for one in frame.look.workers]
    made += [f"failing {' '.join(_group_row(one, frame.look.stats.now_ms))}" for one in frame.groups]
    return [printable(line) for line in made]


def screen(frame: TopFrame, height: int, *, note: str = "") -> RenderableType:
    """Returns the screen for a terminal: tables share the remaining lines, and each shows how many rows it hides."""
    look, now_ms = frame.look, frame.look.stats.now_ms
    shown = frame.findings[:_FINDINGS_SHOWN]
    room = height - _FIXED_LINES - len(shown)
    tables = [
        (("QUEUE", "MODE", "WAITING", "DELAYED", "RUNNING", "OLDEST JOB"), _by_depth(look.queues)),
        (("WORKER", "STATE", "BUSY SLOTS", "HEARTBEAT", "QUEUES"), [_worker_row(one) for one in look.workers]),
        (("FAILING TYPE", "JOBS", "LAST FAILURE", "REASON"), [_group_row(one, now_ms) for one in frame.groups]),
        (("NEWEST FAILURES", "TYPE", "TIME", "REASON"), [_failure_row(one) for one in frame.newest]),
    ]
    parts: list[RenderableType] = [_title(frame), *map(_finding, shown), *_numbers(frame), _curve(frame.trend)]
    for index, (columns, rows) in enumerate(tables):
        share = max(_ROWS_LEAST, room // (len(tables) - index) - _TABLE_LINES)
        used = min(share, len(rows))
        if rows and room >= used + _TABLE_LINES:
            parts += [Text(""), _table(columns, rows, used)]
            room -= used + _TABLE_LINES
    parts += [Text(""), Text(note or "q quits, p pauses", style="dim")]
    return Stack(*parts)


def _title(frame: TopFrame) -> Text:
    mark = Text("● ", style=_STYLES.get(frame.verdict, "bold green"))
    words = Text.assemble(mark, (frame.verdict, "bold"), ("  " + printable(frame.place), "dim"))
    words.append(f"  {as_clock(frame.look.stats.now_ms)[:8]}", style="dim")
    return _one_line(words)


def _finding(one: Finding) -> Text:
    return _one_line(Text("  " + printable(one.text), style="red" if one.is_bad else "yellow"))


def _numbers(frame: TopFrame) -> list[Text]:
    """Returns two lines of aligned numbers."""
    pairs = frame.numbers()
    above, below = pairs[:3], pairs[3:]
    made = [Text(), Text()]
    for columns in zip(above, below, strict=True):
        width = max(cell_len(f"{label} {value}") for label, value in columns)
        for line, (label, value) in zip(made, columns, strict=True):
            line.append(f"{label} ", style="dim").append(printable(value), style="bold")
            line.append(" " * (width + 3 - cell_len(f"{label} {value}")))
    return [_one_line(line) for line in made]


def _curve(trend: Trend) -> Text:
    """Returns a bar chart of the jobs done between two samples, newest at the right."""
    steps = trend.steps(DONE)[-60:]
    top = max(steps, default=0) or 1
    bars = "".join(_BARS[-(-step * (len(_BARS) - 1) // top)] for step in steps)
    return _one_line(Text.assemble(("done   ", "dim"), (bars, "green")))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], used: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="bold", expand=True)
    for column in columns:
        right = column in {
            "WAITING",
            "DELAYED",
            "RUNNING",
            "OLDEST JOB",
            "BUSY SLOTS",
            "HEARTBEAT",
            "JOBS",
            "LAST FAILURE",
        }
        ratio = 1 if column in {"REASON", "QUEUES"} else None
        table.add_column(column, justify="right" if right else "left", no_wrap=True, overflow="ellipsis", ratio=ratio)
    hidden = len(rows) - used
    for row in rows[: used - 1] if hidden else rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    if hidden:
        table.add_row(Text(f"and {hidden + 1:,} more", style="dim"))
    return table


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _by_depth(queues: Iterable[QueueView]) -> list[tuple[str, ...]]:
    return [_queue_row(one) for one in sorted(queues, key=lambda queue: (-queue.ready, queue.name))]


def _queue_row(one: QueueView) -> tuple[str, ...]:
    mode = "" if one.mode == QueueMode.OPEN else one.mode.name.lower()
    oldest = as_span(one.oldest_age_ms) if one.ready else "-"
    return (one.name, mode, f"{one.ready:,}", f"{one.delayed:,}", f"{one.running:,}", oldest)


def _worker_row(one: WorkerView) -> tuple[str, ...]:
    state = "draining" if one.is_draining else "connected" if one.is_streaming else "polling"
    heard = f"{as_span(one.heard_ms_ago)} ago"
    return (one.worker_id, state, f"{one.running}/{one.slots}", heard, ", ".join(one.queues) or "all")


def _group_row(one: FailureGroup, now_ms: int) -> tuple[str, ...]:
    latest = f"{as_span(max(0, now_ms - one.newest.finished_ms))} ago"
    return (one.type, f"{one.jobs:,}", latest, one.newest.failure_reason)


def _failure_row(one: JobView) -> tuple[str, ...]:
    return (one.id, one.template.type, as_clock(one.finished_ms)[:8], one.failure_reason)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}/s"
