"""Measures: their values run by run, with a target or without; the table of them, and their JSON."""

import json
import statistics
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast_lab.measure.rounds import Say

_WIDTH = 150


class Measure(msgspec.Struct, frozen=True):
    """A name, one value for each run, and perhaps a target of their median."""

    name: str
    values: list[float]
    reach: str = ""
    is_reached: bool = True
    unit: str = "×"

    @property
    def median(self) -> float:
        """The value that is shown, and compared with the target."""
        return statistics.median(self.values)

    @property
    def lowest(self) -> float:
        return min(self.values)

    @property
    def highest(self) -> float:
        return max(self.values)

    def overlaps(self, other: "Measure") -> bool:
        """Whether the spreads of the two have a value in common."""
        return max(self.lowest, other.lowest) <= min(self.highest, other.highest)


def at_least(name: str, values: list[float], target: float, unit: str = "×") -> Measure:
    """A measure whose median should not be below the target."""
    return Measure(name, values, f"≥ {target:g} {unit}", statistics.median(values) >= target, unit)


def at_most(name: str, values: list[float], target: float, unit: str = "×") -> Measure:
    """A measure whose median should not be above the target."""
    return Measure(name, values, f"≤ {target:g} {unit}", statistics.median(values) <= target, unit)


def print_table(measures: list[Measure], width: int | None = _WIDTH) -> None:
    """The table of the measures, with the spread over the runs."""
    table = Table(title="Holdfast bench: ratios within one run", show_lines=False)
    for column in ("measure", "reach", "median", "spread", ""):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for measure in measures:
        spread = f"{measure.lowest:.2f} – {measure.highest:.2f}"
        median = f"{measure.median:.2f} {measure.unit}".strip()
        mark = "reached" if measure.is_reached else "MISSED"
        table.add_row(escape(measure.name), measure.reach, median, spread, mark)
    Console(width=width).print(table)


def as_json(measures: list[Measure]) -> str:
    """The measures for programs, on one line."""
    rows = [msgspec.structs.asdict(measure) | {"median": measure.median} for measure in measures]
    return json.dumps({"measures": rows}, ensure_ascii=False)


def conclude(measures: list[Measure], json_file: Path | None = None) -> int:
    """Print the table and the JSON; the exit status is 1 if a target was missed."""
    print_table(measures)
    print(as_json(measures))
    if json_file:
        json_file.write_text(as_json(measures) + "\n")
    return 0 if all(measure.is_reached for measure in measures) else 1


def progress() -> Say:
    """Prints lines of progress, dimmed, beside what is printed for programs."""
    console = Console(stderr=True)
    return lambda text: console.print(f"[dim]{escape(text)}[/dim]")
