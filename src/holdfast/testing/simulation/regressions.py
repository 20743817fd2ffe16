"""Seeds that once failed. Each line is `seed events [-fault ...]  # what it found`; the file only grows."""

from pathlib import Path

from holdfast.testing.simulation.swarm import Settings, draw
from holdfast.testing.simulation.world import Outcome


def line_of(outcome: Outcome, whole: Settings) -> str:
    """The line that replays a (minimised) run."""
    settings = outcome.settings
    off = [f"-{fault}" for fault in whole.faults if fault not in settings.faults]
    found = " ".join(outcome.failure.split())[:160]
    return f"{' '.join([str(settings.seed), str(settings.events), *off])}  # {found}"


def read_line(line: str) -> Settings | None:
    """The run of a line; None for an empty line or a comment."""
    seed, *rest = line.partition("#")[0].split() or [""]
    if not seed:
        return None
    settings = draw(int(seed), int(rest[0]))
    for fault in rest[1:]:
        settings = settings.without(fault.removeprefix("-"))
    return settings


def read_all(path: Path) -> list[Settings]:
    """Every run on record."""
    return [settings for line in path.read_text().splitlines() if (settings := read_line(line))]


def append(path: Path, line: str) -> bool:
    """Adds a line unless it is there; says whether it did."""
    known = path.read_text().splitlines() if path.exists() else []
    if line in known:
        return False
    path.write_text("\n".join([*known, line]) + "\n")
    return True
