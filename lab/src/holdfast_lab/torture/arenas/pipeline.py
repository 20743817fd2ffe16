"""The pipeline topology: every role runs as processes of the arena around one PostgreSQL.

`holdfast up` would start the same processes with production timeouts: a dead watcher would be noticed after half a
minute. So the arena starts each role itself with short timeouts, and replaces killed processes.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast_lab.history.records import Record
from holdfast_lab.measure.reserved_ports import Ports, port_of
from holdfast_lab.torture.arenas import pipeline_facts
from holdfast_lab.torture.arenas.arena_folder import ArenaFolder
from holdfast_lab.torture.arenas.client_proxies import ClientProxies
from holdfast_lab.torture.arenas.clocks import ShortClock
from holdfast_lab.torture.arenas.database_clock import DatabaseClock
from holdfast_lab.torture.arenas.engine_log import EngineLog
from holdfast_lab.torture.arenas.options import LEASE_MS, LOGGING, SLOTS, options_of
from holdfast_lab.torture.arenas.own_arena import OwnArena
from holdfast_lab.torture.arenas.postgres_engine import PostgresEngine
from holdfast_lab.torture.arenas.programs import ArenaPrograms
from holdfast_lab.torture.arenas.restarted_program import RestartedProgram
from holdfast_lab.torture.ports import ArenaClock, Disk, Engine, Proxy

#: The roles of each stage, and the number of processes of each role.
_STAGES: Sequence[Mapping[str, int]] = (
    {"scheduler": 2},
    {"normal": 2, "high": 1, "exchange": 2, "coordinator": 1},
    {"watcher": 2, "gateway": 1},
    {"worker": 2},
)
_COMMANDS = {
    "scheduler": "scheduler --leader-ms 1500",
    "normal": "queue --type normal --index {index}",
    "high": "queue --type high --index {index}",
    "exchange": "exchange --normal {normal} --high {high}",
    "coordinator": "coordinator --normal {normal} --high {high} --heartbeat-ms 400",
    "watcher": "watcher --exchanges {exchange} --poll-ms 500 --visibility-ms 2500",
    "gateway": "gateway --schedulers {scheduler} --grpc-port {grpc} --check-ms 500",
    "worker": "worker --coordinator {coordinator} --worker-id w{index} --concurrency {slots} --lease-ms {lease_ms}",
}


class PipelineArena(OwnArena):
    """Implements the port `Arena`."""

    topology = "pipeline"
    #: Order is kept within a queue process, but not between queue processes.
    keeps = frozenset({"grants", "ticks"})
    results_apart = False
    has_schedules = True

    def __init__(self, folder: Path, app: str) -> None:
        self._arena_folder = ArenaFolder(folder, app, has_small_disk=False)
        self.folder = self._arena_folder.folder
        self._directory = self._arena_folder.data / "postgres"
        self._log = EngineLog(self._arena_folder.logs / "engines.txt")
        self._postgres = PostgresEngine(self._directory, self._arena_folder.expected_exits)
        self.engines: Sequence[Engine] = [self._postgres]
        roles = {role: count for stage in _STAGES for role, count in stage.items()}
        self._held = Ports(sum(roles.values()) + 3)
        places = iter(self._held.addresses)
        self._places = {role: [next(places) for _ in range(count)] for role, count in roles.items()}
        self._grpc = next(places)
        self._proxies = ClientProxies(list(places))
        self.grpc, self.http = self._proxies.places
        self.proxies: Mapping[str, Proxy] = {"clients": self._proxies}
        self._clock = DatabaseClock(self._arena_folder.clock)
        self.clock: ArenaClock | None = ShortClock(self._clock)
        self.disk: Disk | None = None
        stages = [[self._program(role, index) for role in stage for index in range(stage[role])] for stage in _STAGES]
        self._programs = ArenaPrograms(self._arena_folder.expected_exits, *stages, may_refuse=True)

    def _program(self, role: str, index: int) -> RestartedProgram:
        words = {name: ",".join(map(port_of, places)) for name, places in self._places.items()}
        more = {"index": index, "grpc": port_of(self._grpc), "slots": SLOTS, "lease_ms": LEASE_MS}
        command, *options = _COMMANDS[role].format(**words, **more).split()
        app = ["--app", self._arena_folder.app] if role == "worker" else []
        port = port_of(self._places[role][index])
        arguments = ["pipeline", command, "--port", port, *options, *app, *options_of(LOGGING)]
        return self._arena_folder.program(role, f"{role}-{index}", arguments, may_refuse=True)

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        self._log.open()
        url = await self._postgres.start()
        self._clock.connect(url)
        for program in self._programs.programs:
            program.tell(HOLDFAST_DATABASE=url, **_QUICK)
        await self._proxies.open([self._grpc, *self._places["gateway"]])
        await self._programs.start()

    def strange(self) -> list[str]:
        """Returns problems that no fault explains."""
        self._postgres.notice()
        return super().strange()

    async def stop(self) -> None:
        """Stops the database last."""
        async with AsyncExitStack() as ends:  # run every step, even if others fail
            ends.callback(self._log.close)
            ends.push_async_callback(self._postgres.stop)
            ends.callback(self._held.close)
            ends.push_async_callback(self._proxies.close)
            ends.push_async_callback(self._programs.stop)
            await self._clock.close()

    def facts(self) -> list[Record]:
        """Starts the database once more, and reads the facts from it."""
        return pipeline_facts.read(self._directory, are_times_true=not self._clock.was_stepped)


_QUICK = {"HOLDFAST_HEARTBEAT_MS": "400", "HOLDFAST_RATE_LIMIT": "0", "HOLDFAST_WORK_RATE_LIMIT": "0"}
