"""From what somebody wants to run to the verdict: the arena, the run, the judge and the report."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import InvalidArgumentError
from holdfast.lab.check.judging import judge
from holdfast.lab.check.rendering import render
from holdfast.lab.check.ruling import Verdict
from holdfast.lab.torture import report
from holdfast.lab.torture.arenas import TOPOLOGIES, arena_of
from holdfast.lab.torture.faults.kinds import FAULTS
from holdfast.lab.torture.running import Settings, Tell, Torture

ALL = "all"


def faults_of(text: str) -> Sequence[str]:
    """The faults by their names, with commas; all of them, or none."""
    if text == ALL:
        return tuple(FAULTS)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise InvalidArgumentError(f"expected --faults to be all, or some of {', '.join(FAULTS)}; got {unknown[0]!r}")
    return names


def checked_topology(name: str) -> str:
    """One that there is."""
    if name not in TOPOLOGIES:
        raise InvalidArgumentError(f"expected --topology to be one of {', '.join(TOPOLOGIES)}; got {name!r}")
    return name


async def perform(settings: Settings, tell: Tell) -> None:
    """The run itself; what it leaves in the folder can be judged, however it ended."""
    arena = arena_of(settings.topology, settings.folder / "arena")
    try:
        await Torture(settings, arena, FAULTS, tell).run()
    except asyncio.CancelledError:
        tell(f"ended early; `holdfast lab check {settings.folder}` judges what there is")
        raise


def conclude(folder: Path) -> Verdict:
    """Judges what is in the folder, and writes its report."""
    verdict = judge(folder)
    report.write(folder, render(verdict))
    return verdict
