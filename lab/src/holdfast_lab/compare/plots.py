"""The plots of a report. A separate module, because only it needs matplotlib."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator, NullLocator

from holdfast_lab.compare.document import Picture
from holdfast_lab.compare.figures import BIN_S, SHARES, ComparisonTrial, Spread
from holdfast_lab.compare.results import ComparisonResults
from holdfast_lab.compare.workloads import Workload
from holdfast_lab.measure.plot_style import INK, PAPER, dress, encoded

#: Readable on white and on black, and distinct for the colour-blind.
_COLORS = ("#2f7fd0", "#e07b1a", "#2a9d6f", "#b5539c", "#8a7f00", "#7a6ff0")
_MARKS = ("o", "s", "^", "D", "v", "P")
_COLUMNS = 2
_WIDTH, _HEIGHT = 5.6, 3.3
_WIDTH_MAX = 13.0
#: Topologies in one row of panels.
_BESIDE_MAX = 3


def pictures(results: ComparisonResults) -> list[tuple[Picture, bytes]]:
    """Each plot, and its file for Markdown."""
    drawn = [
        ("throughput", "Throughput against concurrency", _throughput(results)),
        ("latency", "Latency of requests: the share that was answered within a time", _latency(results)),
        ("submit-done", "From submit to done: the share of jobs that were over within a time", _submit_done(results)),
        ("fault", "A process is killed at second 0", _timeline(results)),
    ]
    return [_picture(name, title, canvas) for name, title, canvas in drawn if canvas is not None]


def _picture(name: str, title: str, canvas: Canvas) -> tuple[Picture, bytes]:
    canvas.suptitle(title, color=INK, fontsize=12, x=0.01, ha="left")
    drawn = encoded(canvas, name)
    text = drawn.decode()
    inline = text[text.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "none")
    return Picture(f"{name}.svg", title, inline), drawn


def _panels(
    results: ComparisonResults, titles: Sequence[str], rows_each: int = 1, columns_max: int = _COLUMNS
) -> tuple[Canvas, list[list[Any]]]:
    """A panel for each title, in columns, and a legend below them."""
    columns = min(columns_max, len(titles))
    rows = -(-len(titles) // columns)
    width = min(_WIDTH * columns, _WIDTH_MAX)
    canvas = Canvas(figsize=(width, _HEIGHT * rows * rows_each + 0.9), layout="constrained")
    grid: Any = canvas.subplots(rows * rows_each, columns, squeeze=False)
    found = []
    for place, title in enumerate(titles):
        row, column = divmod(place, columns)
        panels = [grid[row * rows_each + step][column] for step in range(rows_each)]
        panels[0].set_title(title, fontsize=10.5, color=INK, loc="left")
        found.append(panels)
    for place in range(len(titles), rows * columns):
        for step in range(rows_each):
            grid[place // columns * rows_each + step][place % columns].set_axis_off()
    handles = [
        mpl.lines.Line2D([], [], color=_COLORS[index], marker=_MARKS[index], linewidth=2, label=name)
        for index, name in enumerate(results.plan.topologies)
    ]
    legend = canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    for text in legend.get_texts():
        text.set_color(INK)
    return canvas, found


def _throughput(results: ComparisonResults) -> Canvas | None:
    """A panel for each series of closed loops that differ only in their concurrency."""
    series: dict[tuple[str, int], list[Workload]] = {}
    for workload in results.plan.workloads:
        if not workload.is_open:
            series.setdefault((workload.kind, workload.job_ms), []).append(workload)
    series = {key: ours for key, ours in series.items() if len(ours) > 1} or series
    if not series:
        return None
    canvas, panels = _panels(results, [f"{kind}, jobs of {job_ms} ms" for kind, job_ms in series])
    for (panel,), workloads in zip(panels, series.values(), strict=True):
        is_life = workloads[0].is_life_cycle
        for index, name in enumerate(results.plan.topologies):
            _range_line(panel, index, [_rates(results, name, one) for one in workloads], workloads)
        dress(panel, "in flight", "jobs/s" if is_life else "requests/s")
        panel.set_xscale("log", base=2)
        ticks = sorted({one.concurrency for one in workloads})
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_ylim(bottom=0)
    return canvas


def _rates(results: ComparisonResults, topology: str, workload: Workload) -> list[float]:
    trials = results.of(topology, workload.name)
    return [trial.jobs_per_s if workload.is_life_cycle else trial.requests_per_s for trial in trials]


def _range_line(panel: Any, index: int, rows: Sequence[list[float]], workloads: Sequence[Workload]) -> None:  # noqa: ANN401
    """The medians, with the range over the runs."""
    points = [(one.concurrency, row) for one, row in zip(workloads, rows, strict=True) if row]
    if not points:
        return
    middles = [statistics.median(row) for _, row in points]
    below = [middle - min(row) for middle, (_, row) in zip(middles, points, strict=True)]
    above = [max(row) - middle for middle, (_, row) in zip(middles, points, strict=True)]
    panel.errorbar(
        [at * (1 + 0.025 * (index - 1)) for at, _ in points],  # shifted, so that bars do not cover each other
        middles,
        yerr=[below, above],
        color=_COLORS[index],
        marker=_MARKS[index],
        markersize=5,
        linewidth=1.8,
        capsize=3,
    )


def _latency(results: ComparisonResults) -> Canvas | None:
    workloads = [one for one in results.plan.workloads if not one.is_life_cycle]
    return _curves(results, workloads, lambda trial: trial.latency)


def _submit_done(results: ComparisonResults) -> Canvas | None:
    workloads = [one for one in results.plan.workloads if one.is_life_cycle and not one.has_fault]
    return _curves(results, workloads, lambda trial: trial.submit_done)


def _curves(
    results: ComparisonResults, workloads: Sequence[Workload], read: Callable[[ComparisonTrial], Spread | None]
) -> Canvas | None:
    """One thin curve for each run."""
    if not workloads:
        return None
    canvas, panels = _panels(results, [one.name for one in workloads])
    for (panel,), workload in zip(panels, workloads, strict=True):
        for index, name in enumerate(results.plan.topologies):
            for trial in results.of(name, workload.name):
                if spread := read(trial):
                    floor = [max(value, 0.1) for value in spread.curve]
                    panel.plot(
                        floor, [100 * share for share in SHARES], color=_COLORS[index], linewidth=1.3, alpha=0.85
                    )
        dress(panel, "milliseconds (logarithmic)", "% of all")
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
        panel.set_ylim(0, 101)
    return canvas


def _timeline(results: ComparisonResults) -> Canvas | None:
    """Finished jobs above, durations of begun jobs below, for each topology."""
    workloads = [one for one in results.plan.workloads if one.has_fault]
    if not workloads:
        return None
    canvas, panels = _panels(results, list(results.plan.topologies), rows_each=2, columns_max=_BESIDE_MAX)
    for index, name in enumerate(results.plan.topologies):
        upper, lower = panels[index]
        for trial in results.of(name, workloads[0].name):
            _steps(upper, lower, trial, _COLORS[index])
        dress(upper, "", "jobs finished/s")
        dress(lower, "seconds from the kill", "slowest job begun then, s")
        lower.set_yscale("log")
        lower.yaxis.set_major_formatter("{x:g}")
        lower.yaxis.set_minor_formatter("")
    _same_limits("x", [panel for pair in panels for panel in pair])
    for row in range(2):
        _same_limits("y", [pair[row] for pair in panels])
    return canvas


def _same_limits(side: str, panels: Sequence[Any]) -> None:
    """Give all panels the same limits."""
    edges = [edge for panel in panels for edge in getattr(panel, f"get_{side}lim")()]
    for panel in panels:
        getattr(panel, f"set_{side}lim")(min(edges), max(edges))


def _steps(upper: Any, lower: Any, trial: ComparisonTrial, color: str) -> None:  # noqa: ANN401
    if trial.fault is None:
        return
    line = {"color": color, "linewidth": 1.3, "alpha": 0.85}
    at = [one.at_s + BIN_S / 2 for one in trial.fault.timeline]
    upper.plot(at, [one.finished / BIN_S for one in trial.fault.timeline], **line)
    failed = [one.at_s + BIN_S / 2 for one in trial.fault.timeline if one.failed]
    upper.scatter(failed, [0] * len(failed), marker="x", color=INK, s=24, zorder=3, clip_on=False)
    began = [(one.at_s + BIN_S / 2, one.slowest_ms / 1_000) for one in trial.fault.timeline if one.slowest_ms]
    lower.plot([when for when, _ in began], [value for _, value in began], **line)
    for panel in (upper, lower):
        panel.axvline(0, color=INK, linestyle="--", linewidth=1)
        panel.axvline(trial.fault.load_s, color=INK, linestyle=":", linewidth=1)
