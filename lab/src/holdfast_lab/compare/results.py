"""The files of a comparison: `results.json` has the figures, `raw/` every request."""

import gzip
from pathlib import Path

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast_lab.compare.figures import ComparisonTrial
from holdfast_lab.compare.messages import Messages
from holdfast_lab.compare.records import Packed
from holdfast_lab.compare.trial import TrialMeasurement
from holdfast_lab.compare.workloads import ComparisonPlan, Workload

RESULTS = "results.json"
RAW = "raw"


class ComparisonResults(msgspec.Struct, frozen=True):
    """The plan, the machine, and the figures."""

    plan: ComparisonPlan
    facts: dict[str, str]
    trials: list[ComparisonTrial]
    messages: list[Messages] = []

    def of(self, topology: str, workload: str) -> list[ComparisonTrial]:
        """The successful trials of one topology and workload."""
        return [one for one in self.trials if (one.topology, one.workload) == (topology, workload) and one.is_good]

    def workload(self, name: str) -> Workload:
        return next(one for one in self.plan.workloads if one.name == name)


class RawTrial(msgspec.Struct, frozen=True):
    """One file below `raw/`: compressed msgpack, with the columns of `holdfast_lab.compare.records`."""

    topology: str
    workload: str
    run: int
    begin: int
    end: int
    fault_at: int
    rows: Packed


def keep(results: ComparisonResults, folder: Path) -> None:
    """Write the figures."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    (folder / RESULTS).write_bytes(text)


def load(folder: Path) -> ComparisonResults:
    """Read the figures."""
    try:
        return msgspec.json.decode((folder / RESULTS).read_bytes(), type=ComparisonResults)
    except (OSError, msgspec.MsgspecError) as error:
        raise FailedPreconditionError(f"{folder / RESULTS} must be the results of a comparison: {error}") from error


def keep_raw(topology: str, workload: Workload, run: int, measured: TrialMeasurement, folder: Path) -> None:
    """Write every request and every job of a trial."""
    fault_at = measured.fault.at if measured.fault else 0
    rows = measured.records.pack()
    raw = RawTrial(topology, workload.name, run, measured.begin, measured.end, fault_at, rows)
    name = f"{topology} {workload.name} {run + 1}".replace(" ", "-").replace("/", "-per-")
    path = folder / RAW / f"{name}.msgpack.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=5) as file:
        file.write(msgspec.msgpack.encode(raw))


def load_raw(path: Path) -> RawTrial:
    """Read one file of `raw/`."""
    with gzip.open(path, "rb") as file:
        return msgspec.msgpack.decode(file.read(), type=RawTrial)
