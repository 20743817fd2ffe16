"""Arenas: every topology as real processes in a folder, and what its store says once they have ended."""

from pathlib import Path

from holdfast.lab.torture.ports import Arena

#: What workers run.
APP = "holdfast.lab.torture.jobs:app"


def arena_of(topology: str, folder: Path, *, app: str = APP) -> Arena:
    """The arena of a topology, in a folder that it makes; only what it needs is loaded."""
    if topology != "embedded":
        raise ValueError(f"there is no arena of {topology!r}")
    from holdfast.lab.torture.arenas.embedded import EmbeddedArena  # noqa: PLC0415 - only who needs it

    return EmbeddedArena(folder, app)
