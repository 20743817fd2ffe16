"""The topologies that can be compared, and how their processes are started and ended.

All have six slots, keep jobs in memory, log warnings only, and are started by `holdfast up`, whose ready line has their
addresses.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from holdfast.server.message_counts import VARIABLE
from holdfast_lab.compare.ingress import addresses
from holdfast_lab.measure.process_tree import argv, tree
from holdfast_lab.measure.processes import default_environment, last_words, module, spawned

SLOTS = 6
START_S = 60.0
STOP_S = 15.0
_KILL_S = 5.0
_LOOK_S = 0.02
#: Options of every compared topology.
OPTIONS = ("--data", "memory://", "--port", "0", "--no-http", "--log-level", "warning", "--log-format", "json")

#: The main class of a ZooKeeper server.
_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How to start a topology, the roles of its processes, and the role that the fault kills."""

    name: str
    title: str
    arguments: tuple[str, ...]
    ingress: str
    #: The role of the process of `holdfast up`.
    root_role: str
    victim: str
    #: The killed process, in words.
    fault: str
    #: Why its messages cannot be counted, if they cannot.
    uncounted: str = ""

    def role(self, command: list[str]) -> str:
        """The role of a process, by its command line: the word after `holdfast`, or the name of a service or role."""
        words = command[command.index("holdfast") + 1 :] if "holdfast" in command else []
        if not words:
            return "ensemble" if _ENSEMBLE in command else "others"
        if words[0] == "up":
            return self.root_role
        return words[1] if words[0] in {"service", "pipeline", "zookeeper"} and len(words) > 1 else words[0]


TOPOLOGIES: Mapping[str, Topology] = MappingProxyType(
    {
        one.name: one
        for one in (
            Topology(
                name="embedded",
                title="one ledger server with one worker of six slots",
                arguments=("--topology", "embedded", "--slots", str(SLOTS)),
                ingress="everything to the one server",
                root_role="server",
                victim="worker",
                fault="the worker process",
            ),
            Topology(
                name="microservices",
                title="six services, one of them a worker with six slots",
                arguments=("--topology", "microservices", "--slots", str(SLOTS)),
                ingress="everything to the gateway",
                root_role="supervisor",
                victim="worker",
                fault="the worker service",
            ),
            Topology(
                name="monolith",
                title="six equal ledger nodes with one slot each",
                arguments=("--topology", "monolith", "--nodes", str(SLOTS)),
                ingress="by owner: submits without a request id in turn, everything else by its id",
                root_role="supervisor",
                victim="node",
                fault="one of the six nodes, with its slot and the jobs that it has in memory",
            ),
            Topology(
                name="pipeline",
                title="roles around one PostgreSQL that waits for no disk, three of them workers of two slots",
                arguments=("--topology", "pipeline", "--slots", str(SLOTS // 3)),
                ingress="everything to the gateway",
                root_role="supervisor",
                victim="worker",
                fault="one of the three workers",
            ),
            Topology(
                name="zookeeper",
                title="an ensemble of three servers that wait for no disk, a gateway, a worker of six slots that bids",
                arguments=("--topology", "zookeeper", "--slots", str(SLOTS)),
                ingress="everything to the gateway",
                root_role="supervisor",
                victim="worker",
                fault="the worker process",
                uncounted="most of them are ZooKeeper's, and only those of gRPC are counted",
            ),
        )
    }
)


class TopologyError(Exception):
    """A topology did not start or ended early; the message has the end of its log."""


class RunningTopology(msgspec.Struct, frozen=True):
    """A running topology."""

    topology: Topology
    targets: tuple[str, ...]
    pid: int
    log: Path
    start_s: float
    #: Problems at its end.
    troubles: list[str]


@contextlib.asynccontextmanager
async def started(
    topology: Topology, *, is_counted: bool = False, options: Sequence[str] = OPTIONS
) -> AsyncIterator[RunningTopology]:
    """A running topology; all its processes have ended after the block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
        log = Path(folder) / "log"
        begun = time.monotonic()
        command = module("holdfast", "up", *topology.arguments, *options)
        process = await spawned(command, environment=_environment(is_counted=is_counted), log=log)
        troubles: list[str] = []
        try:
            targets = await _ready(process, log)
            yield RunningTopology(topology, targets, process.pid, log, time.monotonic() - begun, troubles)
        finally:
            troubles += await _end(process)


def _environment(*, is_counted: bool) -> dict[str, str]:
    """The environment without the user's settings: all topologies run with the product's defaults."""
    kept = {name: value for name, value in default_environment().items() if name != VARIABLE}
    return {**kept, VARIABLE: "1"} if is_counted else kept


async def _ready(process: asyncio.subprocess.Process, log: Path) -> tuple[str, ...]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise TopologyError(f"not ready within {START_S:g} s: {_end_of(log)}") from None
    if not line:
        raise TopologyError(f"it ended with {await process.wait()}: {_end_of(log)}")
    return tuple(addresses(msgspec.json.decode(line, type=dict[str, object]).get("grpc", "")))  # type: ignore[arg-type]


async def _end(process: asyncio.subprocess.Process) -> list[str]:
    """Send TERM, then KILL to each remaining process by its id; returns a line for each of those."""
    pids = tree(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
            while any(_is_there(pid) for pid in pids):  # noqa: ASYNC110 - grandchildren cannot be awaited
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        pass  # remaining processes are reported below
    finally:
        stayed = [pid for pid in {*pids, *tree(process.pid)} if _is_there(pid)]
        names = [" ".join(argv(pid)[:6]) for pid in stayed]
        for pid in stayed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(_KILL_S):
        await process.wait()
    return [f"had to be killed at its end: {name}" for name in names]


def _is_there(pid: int) -> bool:
    """Whether the process runs and is of Holdfast: its id may belong to another program by now."""
    return "holdfast" in argv(pid)


def _end_of(log: Path) -> str:
    return last_words(log.read_text(errors="replace") if log.exists() else "")
