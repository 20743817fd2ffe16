"""One run: an arena, clients, faults one after the other, then the drain, and the final records.

In any case faults are repaired, the arena is stopped, and `run.json` describes the run. A run that ended early can be
checked like any other, except for the end of all jobs: `faults_ended_us` is 0 unless the run waited for that.
"""

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast_lab.history.files import Writer, now_us, write_run
from holdfast_lab.history.records import Broken, DamageFact, Run
from holdfast_lab.torture.faults.kinds import ALONE
from holdfast_lab.torture.faults.machine_faults import ClockStep
from holdfast_lab.torture.faults.restarts import ClockRestart
from holdfast_lab.torture.load.client_group import LoadConfig, TortureLoad
from holdfast_lab.torture.plan import PlannedFault, campaign, drawer, strikes
from holdfast_lab.torture.ports import Arena, Fault, NotNowError, UnrecoveredError
from holdfast_lab.torture.task_group import together

#: All jobs must have ended within this time after the last fault.
DRAIN_BOUND_S = 120.0
#: While no fault is active, a job must be acknowledged and a job must end within this time.
STALL_S = 60.0
#: How long a strike waits for its number of jobs.
_PROGRESS_S = 15.0
#: Time limit of a fault, including its repair.
_FAULT_S = 180.0
_NOT_NOW_TRIES = 20
#: If jobs are still open after this time, and clocks were ahead, they are set ahead again.
_LATE_S = 20.0
_AHEAD = re.compile(r"by \+(\S+) s")
_LOOK_S = 0.1
_AGAIN_S = 0.5
_TELL_S = 5.0
_LEFT_TOLD = 5
#: The note of a fault that was active when the run was ended; its effect is unknown.
GIVEN_UP = "given up"

Tell = Callable[[str], None]


class TortureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a run."""

    topology: str
    minutes: float
    seed: int
    folder: Path
    #: The names of the faults.
    faults: Sequence[str]
    #: How often each of them is fired; empty: as often as there is time.
    counts: Mapping[str, int] = {}
    clients: int = 6
    stall_s: float = STALL_S
    drain_bound_s: float = DRAIN_BOUND_S
    version: str = ""
    command: str = ""


class TortureError(Exception):
    """The lab itself failed and cannot continue; that proves nothing about the product."""


class Torture:
    """One run; its records are in the folder."""

    def __init__(self, settings: TortureSettings, arena: Arena, faults: Mapping[str, Fault], tell: Tell) -> None:
        self._settings = settings
        self._arena = arena
        self._tell = tell
        self._faults = {kind: faults[kind] for kind in settings.faults}
        self._load = TortureLoad(
            LoadConfig(
                grpc=arena.grpc,
                http=arena.http,
                folder=settings.folder,
                seed=settings.seed,
                clients=settings.clients,
                has_schedules=arena.has_schedules,
                has_true_clocks=not {ClockStep.kind, ClockRestart.kind} & set(settings.faults),
            )
        )
        self._run = Run(
            settings.topology,
            settings.seed,
            keeps=sorted(arena.keeps),
            results_apart=arena.results_apart,
            drain_bound_s=settings.drain_bound_s,
            version=settings.version,
            command=settings.command,
        )
        self._writer = Writer(settings.folder / "faults.jsonl")
        #: Problems that no fault explains and that are in no other record.
        self.findings: list[str] = []
        self._under_way = 0
        self._fired: dict[str, int] = {}
        #: The furthest that clocks were ahead.
        self._ahead_s = 0.0
        self._quiet_since_us = 0
        self._faults_ended_us = 0
        self._told_s = 0.0

    @property
    def has_begun(self) -> bool:
        """Whether there are records to check."""
        return self._run.begun_us > 0

    async def run(self) -> None:
        """Runs everything, up to reading the store at the end."""
        self._tell(f"starting {self._settings.topology} in {self._arena.folder}")
        self._save()
        try:
            await self._arena.start()
            await self._under_load()
            await self._in_peace()
        finally:
            try:
                await self._load.close()
            finally:
                await self._arena.stop()
            if self.has_begun:
                self._close()

    async def _under_load(self) -> None:
        reasons = {kind: fault.lacking(self._arena) for kind, fault in self._faults.items()}
        left_out = {kind: reason for kind, reason in reasons.items() if reason}
        self._faults = {kind: fault for kind, fault in self._faults.items() if not reasons[kind]}
        await self._load.begin()
        left_out |= self._load.left_out
        self._save(begun_us=now_us(), faults=sorted(self._faults), calls=self._load.calls, left_out=left_out)
        for name, why in left_out.items():
            self._tell(f"without {name}: {why}")
        self._load.run()
        self._quiet_since_us = now_us()
        counts = {kind: count for kind, count in self._settings.counts.items() if kind in self._faults}
        end_s = math.inf if counts else time.monotonic() + self._settings.minutes * 60
        seed = self._settings.seed
        for strike in campaign(seed, counts) if counts else strikes(seed, list(self._faults), ALONE):
            if not await self._progress(strike.jobs, end_s):
                break
            await self._strike(strike)
        else:
            if not counts:
                await self._progress(math.inf, end_s)
        self._faults_ended_us = now_us()

    async def _in_peace(self) -> None:
        bound_s = self._settings.drain_bound_s
        self._tell(f"no more faults; waiting up to {bound_s:g} s until all jobs have ended")
        later = asyncio.get_running_loop().call_later(_LATE_S, self._let_time_pass)
        try:
            drained_us = await self._load.settle(bound_s)
        finally:
            later.cancel()
        self._save(faults_ended_us=self._faults_ended_us, drained_us=drained_us, schedules=self._load.schedules())
        if drained_us:
            count = await self._load.look_again()
            self._tell(f"all jobs have ended; read once more, over gRPC and over HTTP, with {count} answers")
        else:
            left = self._load.left
            self._tell(f"jobs that have not ended: at least {len(left)}, such as {', '.join(left[:_LEFT_TOLD])}")

    def _let_time_pass(self) -> None:
        """Sets the clock ahead again: otherwise delays stamped while clocks were ahead would come due too late."""
        clock = self._arena.clock
        if clock is not None and self._ahead_s:
            at_us = now_us()
            clock.step(round(self._ahead_s * 1_000))
            target = f"by {self._ahead_s:+g} s, so that delays stamped while clocks were ahead come due"
            self._writer.write(Broken(at_us, now_us(), ClockStep.kind, target))
            self._tell(f"clock: {target}")

    def _save(self, **changes: object) -> None:
        self._run = msgspec.structs.replace(self._run, **changes)
        write_run(self._settings.folder, self._run)

    # -- faults

    async def _strike(self, strike: PlannedFault) -> None:
        """Fires the faults; returns once all are repaired."""
        self._under_way += 1
        try:
            fires = [
                self._fire(strike, kind, strike.later_ms * place / 1_000) for place, kind in enumerate(strike.kinds)
            ]
            watcher = asyncio.create_task(self._telling())
            try:
                await together(fires)
            finally:
                watcher.cancel()
        finally:
            self._under_way -= 1
            self._quiet_since_us = now_us()

    async def _fire(self, strike: PlannedFault, kind: str, later_s: float) -> None:
        await asyncio.sleep(later_s)
        draw = drawer(self._settings.seed, strike, kind)
        for _ in range(_NOT_NOW_TRIES):
            at_us = now_us()
            try:
                async with asyncio.timeout(_FAULT_S):
                    target = await self._faults[kind].fire(self._arena, draw)
            except NotNowError:
                await asyncio.sleep(_AGAIN_S)
                continue
            except UnrecoveredError as error:
                target = str(error)
                self.findings.append(f"{kind}: {error}")
            except BaseException as error:
                self._writer.write(Broken(at_us, now_us(), kind, note=GIVEN_UP))
                if isinstance(error, TimeoutError):
                    raise TortureError(f"the fault {kind} did not end in time") from None
                raise
            self._writer.write(Broken(at_us, now_us(), kind, target))
            if kind == ClockStep.kind and (step := _AHEAD.match(target)):
                self._ahead_s = max(self._ahead_s, float(step[1]))
            self._fired[kind] = self._fired.get(kind, 0) + 1
            self._tell(f"{self._numbers()}; {kind}: {target}, {(now_us() - at_us) / 1e6:.1f} s")
            return

    async def _telling(self) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            self._tell(self._numbers())

    async def _progress(self, jobs: float, end_s: float) -> bool:
        """Waits for this many more acknowledged jobs, or for a time limit; returns False if the run is over."""
        tally = self._load.tally
        enough = tally.acknowledged + jobs
        until_s = end_s if jobs == math.inf else min(end_s, time.monotonic() + _PROGRESS_S)
        while time.monotonic() < until_s and tally.acknowledged < enough:
            await asyncio.sleep(_LOOK_S)
            if error := self._load.problem():
                raise error
            if tally.strange or self._is_stalled():
                return False
            if time.monotonic() > self._told_s + _TELL_S:
                self._told_s = time.monotonic()
                self._tell(self._numbers())
                if self._arena.strange():
                    return False
        return time.monotonic() < end_s

    def _is_stalled(self) -> bool:
        tally, stall_s = self._load.tally, self._settings.stall_s
        for what, at_us in (("acknowledged", tally.acknowledged_us), ("seen to end", tally.ended_us)):
            if now_us() - max(at_us, self._quiet_since_us) > stall_s * 1e6:
                self.findings.append(f"no job was {what} for {stall_s:g} s, although no fault was active")
                return True
        return False

    def _numbers(self) -> str:
        tally = self._load.tally
        fired = sum(self._fired.values())
        return f"{tally.acknowledged} jobs, {tally.ended} seen to end, {tally.lost} calls lost, {fired} faults"

    # -- the end

    def _close(self) -> None:
        """Writes the findings and the facts of the store."""
        self.findings += [f"a response that is not in the contract: {text}" for text in self._load.tally.strange]
        self.findings += self._arena.strange()
        for text in self.findings:
            self._writer.write(DamageFact(text))
        self._writer.close()
        self._save(trimmed=self._arena.trimmed())
        with Writer(self._settings.folder / "facts.jsonl") as writer:
            for fact in self._arena.facts():
                writer.write(fact)
