"""Which topologies can be compared: one entry of a table each, and the processes behind it.

All get six slots, keep jobs in memory, log warnings only, and are started by `holdfast up`, whose ready line says where
they listen.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from holdfast.lab.compare.process_tree import argv, tree
from holdfast.lab.compare.routing import addresses
from holdfast.server.grpc.message_counters import VARIABLE

SLOTS = 6
START_S = 60.0
STOP_S = 15.0
_KILL_S = 5.0
_LOOK_S = 0.02
#: The same for every topology that is compared.
OPTIONS = ("--data", "memory://", "--port", "0", "--no-http", "--log-level", "warning", "--log-format", "json")


#: What Java is told to run.
_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How to start it, what its processes are called, and who is killed in a fault."""

    name: str
    title: str
    arguments: tuple[str, ...]
    ingress: str
    #: The role of the process that `holdfast up` itself is.
    root_role: str
    victim: str
    #: What is killed, in words.
    fault: str
    #: Why its messages cannot be counted, if they cannot.
    uncounted: str = ""

    def role(self, command: list[str]) -> str:
        """By the command line: the word after `holdfast`, and for a service or a role its name."""
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
    """A topology did not start or did not go on; the message is the end of what it said."""


class Started(msgspec.Struct, frozen=True):
    """A topology that is ready."""

    topology: Topology
    targets: tuple[str, ...]
    pid: int
    log: Path
    start_s: float
    #: What went wrong at its end.
    troubles: list[str]


@contextlib.asynccontextmanager
async def started(
    topology: Topology, *, is_counted: bool = False, options: Sequence[str] = OPTIONS
) -> AsyncIterator[Started]:
    """Its processes, all of which are gone after the block, however it ends."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as folder:
        log = Path(folder) / "log"
        begun = time.monotonic()
        process = await _spawn(topology, Path(folder), log, options, is_counted=is_counted)
        troubles: list[str] = []
        try:
            targets = await _ready(process, log)
            yield Started(topology, targets, process.pid, log, time.monotonic() - begun, troubles)
        finally:
            troubles += await _end(process)


async def _spawn(
    topology: Topology, folder: Path, log: Path, options: Sequence[str], *, is_counted: bool
) -> asyncio.subprocess.Process:
    command = [sys.executable, "-P", "-m", "holdfast", "up", *topology.arguments]
    with log.open("wb") as stream:
        return await asyncio.create_subprocess_exec(
            *command,
            *options,
            cwd=folder,
            env=_environment(is_counted=is_counted),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stream,
            start_new_session=True,  # a Ctrl-C at the terminal is for the lab, which ends it
        )


def _environment(*, is_counted: bool) -> dict[str, str]:
    """Without the settings of whoever compares: all topologies run with the product's defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") and name != VARIABLE}
    return {**kept, VARIABLE: "1"} if is_counted else kept


async def _ready(process: asyncio.subprocess.Process, log: Path) -> tuple[str, ...]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise TopologyError(f"not ready within {START_S:g} s: {last_words(log)}") from None
    if not line:
        raise TopologyError(f"it ended with {await process.wait()}: {last_words(log)}")
    return tuple(addresses(msgspec.json.decode(line, type=dict[str, object]).get("grpc", "")))  # type: ignore[arg-type]


async def _end(process: asyncio.subprocess.Process) -> list[str]:
    """TERM, and for whoever stays KILL, each by its own id; says what had to be killed."""
    pids = tree(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
            while any(_is_there(pid) for pid in pids):  # noqa: ASYNC110 - others' processes tell nobody of their end
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        pass  # what stayed is named below
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
    """Whether it runs and is one of ours: an id may be another's by now, and what only waits for its parent is over."""
    return "holdfast" in argv(pid)


def last_words(log: Path) -> str:
    """The end of what it wrote, on one line."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    return " / ".join(lines[-3:])[-400:] or "it said nothing"
