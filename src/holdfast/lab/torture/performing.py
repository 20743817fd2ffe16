"""From what somebody wants to run to the verdict: the arena, the run, the judge and the report."""

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.lab.check.judging import judge
from holdfast.lab.check.rendering import render
from holdfast.lab.check.ruling import Verdict
from holdfast.lab.torture import report
from holdfast.lab.torture.arenas import TOPOLOGIES, arena_of
from holdfast.lab.torture.faults.kinds import FAULTS
from holdfast.lab.torture.faults.own_mounts import have_own_mounts
from holdfast.lab.torture.running import Settings, Tell, Torture, TortureError
from holdfast.process import postgres_programs
from holdfast.topologies.zookeeper import programs

ALL, NONE = "all", "none"
#: A few seconds, and a week.
MINUTES_MIN, MINUTES_MAX = 0.05, 10_080.0
INTERRUPTED = "somebody ended it"
_NO_DATA = Path(os.devnull, "data")

#: What a topology stands on: its name, the package that brings it, and who looks for it.
_ENGINES: Mapping[str, tuple[str, str, Callable[[], object]]] = {
    "pipeline": ("PostgreSQL", "postgresql", lambda: postgres_programs.find_programs(_NO_DATA)),
    "zookeeper": ("ZooKeeper", "zookeeper", programs.find_programs),
}


def faults_of(text: str) -> Sequence[str]:
    """The faults by their names, with commas; all of them, or none."""
    if text == ALL:
        return tuple(FAULTS)
    if text == NONE:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise InvalidArgumentError(
            f"expected --faults to be all, none, or some of {', '.join(FAULTS)}; got {unknown[0]!r}"
        )
    return names


def checked_topology(name: str) -> str:
    """One that there is, and that can be started on this machine."""
    if name not in TOPOLOGIES:
        raise InvalidArgumentError(f"expected --topology to be one of {', '.join(TOPOLOGIES)}; got {name!r}")
    if name in _ENGINES:
        engine, package, find = _ENGINES[name]
        try:
            find()
        except FailedPreconditionError:
            raise FailedPreconditionError(
                f"{name} needs {engine}, which is not on this machine: apt-get install {package}",
                reason="ENGINE_MISSING",
            ) from None
    return name


def checked_minutes(minutes: float) -> float:
    """A number that comes to an end."""
    if not (math.isfinite(minutes) and MINUTES_MIN <= minutes <= MINUTES_MAX):
        raise InvalidArgumentError(
            f"expected --minutes to be a number from {MINUTES_MIN:g} to {MINUTES_MAX:g}, got {minutes:g}"
        )
    return minutes


async def perform(settings: Settings, tell: Tell) -> str:
    """The run itself; why it ended early, if it did and can be judged. Raises what kept it from beginning."""
    have_own_mounts()
    torture = Torture(settings, arena_of(settings.topology, settings.folder / "arena"), FAULTS, tell)
    try:
        await torture.run()
    except asyncio.CancelledError:
        if not torture.has_begun:
            tell("ended before anything was asked: there is nothing to judge")
            raise
        return INTERRUPTED
    except (TortureError, OSError) as error:
        if not torture.has_begun:
            raise
        return f"the lab could not go on: {error}"
    return ""


def conclude(folder: Path, ended_early: str = "") -> Verdict:
    """Judges what is in the folder, and writes its report; a run that ended early says why."""
    verdict = judge(folder)
    report.write(folder, render(verdict), ended_early)
    return verdict
