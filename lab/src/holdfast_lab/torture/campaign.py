"""Runs a torture from its command-line arguments to the verdict: the arena, the run, the checker and the report."""

import asyncio
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.errors import FailedPreconditionError, InvalidArgumentError
from holdfast.process import postgres_programs
from holdfast.topologies.zookeeper import programs
from holdfast_lab.check.judge import judge
from holdfast_lab.check.verdict import Verdict
from holdfast_lab.check.verdict_report import render
from holdfast_lab.torture import report
from holdfast_lab.torture.arenas import TOPOLOGIES, arena_of
from holdfast_lab.torture.faults.kinds import FAULTS, fault_of
from holdfast_lab.torture.faults.private_mounts import have_own_mounts
from holdfast_lab.torture.run import Tell, Torture, TortureError, TortureSettings

ALL, NONE = "all", "none"
#: From a few seconds to a week.
MINUTES_MIN, MINUTES_MAX = 0.05, 10_080.0
INTERRUPTED = "it was interrupted"
_NO_DATA = Path(os.devnull, "data")

#: The engine of a topology: its name, its package, and the function that finds its programs.
_ENGINES: Mapping[str, tuple[str, str, Callable[[], object]]] = {
    "pipeline": ("PostgreSQL", "postgresql", lambda: postgres_programs.find_programs(_NO_DATA)),
    "zookeeper": ("ZooKeeper", "zookeeper", programs.find_programs),
}


def faults_of(text: str) -> Sequence[str]:
    """Returns the names of the faults from a comma-separated list, or all of them, or none."""
    if text == ALL:
        return tuple(FAULTS)
    if text == NONE:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise InvalidArgumentError(f"--faults must be all, none, or some of {', '.join(FAULTS)}; got {unknown[0]!r}")
    return names


def checked_topology(name: str) -> str:
    """Returns the name of a topology that exists and whose engine is installed."""
    if name not in TOPOLOGIES:
        raise InvalidArgumentError(f"--topology must be one of {', '.join(TOPOLOGIES)}; got {name!r}")
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
    """Returns the number if it is finite and within the limits."""
    if not (math.isfinite(minutes) and MINUTES_MIN <= minutes <= MINUTES_MAX):
        raise InvalidArgumentError(
            f"--minutes must be a number from {MINUTES_MIN:g} to {MINUTES_MAX:g}, got {minutes:g}"
        )
    return minutes


async def perform(settings: TortureSettings, tell: Tell) -> str:
    """Runs the torture; returns why it ended early, or an empty string. Raises errors from before the load began."""
    have_own_mounts()
    faults = {name: fault_of(name) for name in settings.faults}
    torture = Torture(settings, arena_of(settings.topology, settings.folder / "arena"), faults, tell)
    try:
        await torture.run()
    except asyncio.CancelledError:
        if not torture.has_begun:
            tell("ended before the load began: there is nothing to check")
            raise
        return INTERRUPTED
    except (TortureError, OSError) as error:
        if not torture.has_begun:
            raise
        return f"the lab could not continue: {error}"
    return ""


def conclude(folder: Path, ended_early: str = "") -> Verdict:
    """Checks the records in the folder and writes the report, with the reason if the run ended early."""
    verdict = judge(folder)
    report.write(folder, render(verdict), ended_early)
    return verdict
