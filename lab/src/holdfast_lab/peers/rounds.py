"""The trials, round after round, each in a process of its own and between two measurements of the yardstick."""

import asyncio
from collections.abc import Iterator
from functools import partial

import msgspec

from holdfast_lab.measure.echo import CALLS, Baseline, Yardstick, measure_apart
from holdfast_lab.measure.processes import ChildError, echo_server, module, output_of
from holdfast_lab.measure.rounds import Say, orders
from holdfast_lab.peers.measures import MEASURES
from holdfast_lab.peers.results import KillTrial, PeersResults, PeersTrial
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.systems import KILL, SYSTEMS
from holdfast_lab.peers.trial import TrialOutput

_TRIAL_S = 400
_KILLS_AT_ONCE = 4


class PeersPlan(msgspec.Struct, frozen=True):
    """Arguments of one run."""

    systems: list[str]
    rounds: int = 3
    kills: int = 3
    seconds: float = 5.0
    #: Calls of each measurement of the yardstick.
    echo_calls: int = CALLS


def schedule(plan: PeersPlan) -> Iterator[tuple[int, str, str, str]]:
    """Round, measure, system and mode: systems take turns."""
    for number, systems in orders(plan.systems, plan.rounds):
        for measure in MEASURES:
            for system in filter(lambda name: measure in SYSTEMS[name].measures, systems):
                for mode in SYSTEMS[system].modes:
                    yield number, measure, system, mode


async def run(plan: PeersPlan, facts: dict[str, str], say: Say) -> PeersResults:
    """All trials of speed one by one, then the kills, which mostly wait and so run side by side."""
    abouts: dict[str, SystemDescription] = {}
    trials = await _speeds(plan, abouts, say)
    kills = await _kills(plan, abouts, say)
    return PeersResults(facts, {name: abouts[name] for name in plan.systems if name in abouts}, trials, kills)


async def _speeds(plan: PeersPlan, abouts: dict[str, SystemDescription], say: Say) -> list[PeersTrial]:
    trials: list[PeersTrial] = []
    with echo_server() as address:
        baseline = Baseline(partial(measure_apart, address, plan.echo_calls))
        await baseline.begin()
        for number, measure, system, mode in schedule(plan):
            trial = PeersTrial(system, mode, measure, number)
            try:
                told = await _in_process(system, mode, measure, plan.seconds)
            except ChildError as error:
                trials.append(msgspec.structs.replace(trial, error=str(error)))
                say(f"round {number + 1}: {measure} {system} ({mode}) FAILED: {error}")
                continue
            abouts[system] = told.about
            trials.append(_measured(trial, told, await baseline.end()))
            say(f"round {number + 1}: {measure} {system} ({mode}) {_shown(told.values)}")
    return trials


def _measured(trial: PeersTrial, told: TrialOutput, echo: Yardstick) -> PeersTrial:
    return msgspec.structs.replace(trial, values=told.values, echo_rate=echo.rate, echo_ms=echo.round_trip_ms)


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in values.items())


async def _kills(plan: PeersPlan, abouts: dict[str, SystemDescription], say: Say) -> list[KillTrial]:
    room = asyncio.Semaphore(_KILLS_AT_ONCE)

    async def one(system: str, number: int) -> KillTrial:
        async with room:
            try:
                told = await _in_process(system, SYSTEMS[system].modes[0], KILL, plan.seconds)
            except ChildError as error:
                say(f"kill {system} FAILED: {error}")
                return KillTrial(system, number, error=str(error))
        abouts.setdefault(system, told.about)
        assert told.kill is not None
        say(f"kill {number + 1}: {system} finished {told.kill.finished} of {told.kill.jobs}, lost {told.kill.lost}")
        return KillTrial(system, number, told.kill)

    killed = [system for system in plan.systems if KILL in SYSTEMS[system].workers]
    pairs = [(system, number) for number in range(plan.kills) for system in killed]
    return list(await asyncio.gather(*(one(*pair) for pair in pairs)))


async def _in_process(system: str, mode: str, measure: str, seconds: float) -> TrialOutput:
    command = module("holdfast_lab.peers.trial", system, mode, measure, "--seconds", str(seconds))
    return msgspec.json.decode((await output_of(command, timeout_s=_TRIAL_S)).splitlines()[-1], type=TrialOutput)
