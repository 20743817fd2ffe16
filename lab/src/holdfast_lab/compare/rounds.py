"""The run of a plan: turn by turn, each with new processes, then the count of messages."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast_lab.compare.figures import ComparisonTrial, figures
from holdfast_lab.compare.idle_wait import QUIET_S, quieten
from holdfast_lab.compare.messages import Messages, count_messages
from holdfast_lab.compare.results import ComparisonResults, keep_raw
from holdfast_lab.compare.topologies import TOPOLOGIES, RunningTopology, Topology, TopologyError, started
from holdfast_lab.compare.trial import TrialError, run_trial
from holdfast_lab.compare.workloads import ComparisonPlan, Workload

#: Called after every step with its number, the number of steps, and a line about it.
Tell = Callable[[int, int, str], None]


class Comparison:
    """The run of one plan."""

    def __init__(
        self, plan: ComparisonPlan, folder: Path, tell: Tell, table: Mapping[str, Topology] = TOPOLOGIES
    ) -> None:
        self._plan = plan
        self._table = table
        self._folder = folder
        self._tell = tell
        self._trials: list[ComparisonTrial] = []
        counts = len(plan.topologies) if plan.counted_jobs else 0
        self._steps = plan.runs * len(plan.topologies) * len(plan.workloads) + counts
        self._step = 0

    async def run(self, facts: dict[str, str]) -> ComparisonResults:
        """Run everything; a failed trial is a refusal in the results and does not end the comparison."""
        for run, group, topology in self._plan.turns():
            await self._turn(run, group, topology)
        messages = [await self._count(name) for name in self._plan.topologies] if self._plan.counted_jobs else []
        return ComparisonResults(self._plan, facts, self._trials, messages)

    async def _turn(self, run: int, group: tuple[Workload, ...], name: str) -> None:
        """Run one group of workloads on new processes."""
        left = list(group)
        done: list[ComparisonTrial] = []
        try:
            async with started(self._table[name]) as running:
                while left:
                    done.append(await self._trial(run, left[0], running))
                    left.pop(0)
                    if left:
                        await _wait_for_quiet(running)
                troubles = running.troubles
            if troubles:
                done[-1].troubles.extend(troubles)
        except (TopologyError, TrialError) as error:
            for workload in left:
                refused = ComparisonTrial(topology=name, workload=workload.name, run=run, refusal=str(error))
                done.append(refused)
                self._say(f"run {run + 1}: {name}, {workload.name}: REFUSED: {error}")
        self._trials += done

    async def _trial(self, run: int, workload: Workload, running: RunningTopology) -> ComparisonTrial:
        name = running.topology.name
        seed = self._plan.seed + 1_000 * run
        measured = await run_trial(running, workload, seed=seed, clients=self._plan.clients)
        await asyncio.to_thread(keep_raw, name, workload, run, measured, self._folder)
        trial = await asyncio.to_thread(figures, name, workload, run, measured, start_s=running.start_s)
        self._say(f"run {run + 1}: {name}, {workload.name}: {_shown(trial)}")
        return trial

    async def _count(self, name: str) -> Messages:
        messages = await count_messages(self._table[name], self._plan.counted_jobs)
        said = f"REFUSED: {messages.refusal}" if messages.refusal else f"{messages.per_job:.2f} messages per job"
        self._say(f"messages: {name}: {said}")
        return messages

    def _say(self, line: str) -> None:
        self._step += 1
        self._tell(self._step, self._steps, line)


async def _wait_for_quiet(running: RunningTopology) -> None:
    if not await quieten(running):
        raise TrialError(f"jobs of the workload before were not over after {QUIET_S:g} s")


def _shown(trial: ComparisonTrial) -> str:
    rate = f"{trial.requests_per_s:,.0f} req/s"
    jobs = f", {trial.jobs_per_s:,.0f} jobs/s" if trial.submit_done else ""
    errors = f", {sum(trial.errors.values())} errors" if trial.errors else ""
    return f"{rate}{jobs}{errors}"
