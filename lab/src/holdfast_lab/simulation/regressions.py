"""Seeds that once failed. Each line is `seed events [-fault ...]  # the finding`; the file only grows."""

from pathlib import Path

from holdfast_lab.simulation.swarm import SwarmSettings, draw
from holdfast_lab.simulation.world import RunOutcome


def line_of(outcome: RunOutcome, whole: SwarmSettings) -> str:
    """Returns the line that replays a (minimised) run."""
    settings = outcome.settings
    off = [f"-{fault}" for fault in whole.faults if fault not in settings.faults]
    found = " ".join(outcome.failure.split())[:160]
    return f"{' '.join([str(settings.seed), str(settings.events), *off])}  # {found}"


def read_line(line: str) -> SwarmSettings | None:
    """Returns the run of a line; None for an empty line or a comment."""
    seed, *rest = line.partition("#")[0].split() or [""]
    if not seed:
        return None
    settings = draw(int(seed), int(rest[0]))
    for fault in rest[1:]:
        settings = settings.without(fault.removeprefix("-"))
    return settings


def read_all(path: Path) -> list[SwarmSettings]:
    """Reads all recorded runs."""
    return [settings for line in path.read_text().splitlines() if (settings := read_line(line))]


def append(path: Path, line: str) -> bool:
    """Adds a line unless it exists; returns whether it did."""
    known = path.read_text().splitlines() if path.exists() else []
    if line in known:
        return False
    path.write_text("\n".join([*known, line]) + "\n")
    return True
