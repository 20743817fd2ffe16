"""The results of a whole run, and the figures computed from them."""

import msgspec

from holdfast_lab.measure.measures import Measure
from holdfast_lab.peers.stores import ONLY_SYNCED
from holdfast_lab.peers.system import SystemDescription
from holdfast_lab.peers.worker_kill import KillOutcome

FIGURES = {
    "bulk": "bulk enqueue",
    "one_by_one": "submit one by one",
    "together": "submit by 64 callers",
    "end_to_end": "end to end",
    "p50": "idle p50",
    "p99": "idle p99",
}
#: More is better for rates, less for times.
RATES = ("bulk", "one_by_one", "together", "end_to_end")
TIMES = ("p50", "p99")
#: The measures that give a rate, and its name as a figure.
_RATES = {
    "bulk_enqueue": "bulk",
    "submit_one_by_one": "one_by_one",
    "submit_together": "together",
    "end_to_end": "end_to_end",
}
#: Figures by system, mode and name.
Figures = dict[tuple[str, str, str], Measure]


class PeersTrial(msgspec.Struct, frozen=True):
    """One measure of one system in one round, and the yardstick measured around it."""

    system: str
    mode: str
    measure: str
    round: int
    values: dict[str, float] = {}
    echo_rate: float = 0.0
    echo_ms: float = 0.0
    error: str = ""


class KillTrial(msgspec.Struct, frozen=True):
    """One kill of a worker."""

    system: str
    round: int
    kill: KillOutcome | None = None
    error: str = ""


class PeersResults(msgspec.Struct, frozen=True):
    """All trials, for programs and for documents."""

    facts: dict[str, str]
    systems: dict[str, SystemDescription]
    trials: list[PeersTrial]
    kills: list[KillTrial]

    @property
    def errors(self) -> list[str]:
        """The failed trials, one line each."""
        failed = [f"{one.system} {one.measure} ({one.mode}): {one.error}" for one in self.trials if one.error]
        return failed + [f"{one.system} kill: {one.error}" for one in self.kills if one.error]


def ratios(trial: PeersTrial) -> dict[str, float]:
    """The trial as multiples of the yardstick: rates to its rate, times to its round trip."""
    if trial.error:
        return {}
    if trial.measure == "idle_latency":
        return {name: trial.values[f"{name}_ms"] / trial.echo_ms for name in TIMES}
    return {_RATES[trial.measure]: trial.values["rate"] / trial.echo_rate}


def figures(trials: list[PeersTrial]) -> Figures:
    """All figures, with a ratio for each round; each has the name of its system."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for trial in trials:
        for name, value in ratios(trial).items():
            values.setdefault((trial.system, trial.mode, name), []).append(value)
    return {key: Measure(key[0], found) for key, found in values.items()}


def rates_of(results: PeersResults) -> list[str]:
    """The rates that have a column: that of concurrent callers only if a system has it."""
    has_together = any(trial.measure == "submit_together" for trial in results.trials)
    return [name for name in RATES if name != "together" or has_together]


def figure_of(found: Figures, system: str, mode: str, name: str) -> Measure | None:
    """The system's figure in this mode; a system that is measured only synced has the same figure in every mode."""
    return found.get((system, mode, name)) or found.get((system, ONLY_SYNCED, name))


def ranked(results: PeersResults, mode: str, name: str) -> list[Measure]:
    """The systems' figures of one name and mode, the best first."""
    found = figures(results.trials)
    row = [figure_of(found, system, mode, name) for system in results.systems]
    return sorted((one for one in row if one), key=lambda one: one.median, reverse=name in RATES)


def as_json(results: PeersResults) -> bytes:
    """The results as JSON; the figures are added for readers of the file."""
    rows = [
        dict(zip(("system", "mode", "figure"), key, strict=True))
        | {"values": one.values, "median": one.median, "min": one.lowest, "max": one.highest}
        for key, one in figures(results.trials).items()
    ]
    return msgspec.json.format(msgspec.json.encode(msgspec.structs.asdict(results) | {"figures": rows}))


def from_json(text: bytes) -> PeersResults:
    """Read the output of `as_json`."""
    return msgspec.json.decode(text, type=PeersResults)
