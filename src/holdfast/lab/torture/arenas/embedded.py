"""The embedded topology: one ledger server, and two workers that reach it over a road of their own.

The server and the workers are the arena's own, so that each can be killed alone; the arena replaces whoever is killed.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.lab.history.records import Record
from holdfast.lab.torture.arenas import ledger_facts
from holdfast.lab.torture.arenas.grounds import Grounds
from holdfast.lab.torture.arenas.kept_program import KeptProgram
from holdfast.lab.torture.arenas.logs import Log
from holdfast.lab.torture.arenas.options import LEDGER, LOGGING, UNLIMITED, WORKER, options_of
from holdfast.lab.torture.arenas.places import HOST, row_of_ports
from holdfast.lab.torture.ports import Clockwork, Disk, Engine, Process, Proxy

WORKERS = 2


class EmbeddedArena:
    """Implements the port `Arena`."""

    topology = "embedded"
    keeps = frozenset({"grants", "order", "ticks"})
    has_schedules = True

    def __init__(self, folder: Path, app: str) -> None:
        self._grounds = Grounds(folder, app, has_small_disk=True)
        self.folder = self._grounds.folder
        port = row_of_ports()
        http_port = row_of_ports(but=[port])
        self._server = f"{HOST}:{port}"
        self.grpc, self.http = self._server, f"{HOST}:{http_port}"
        self.proxies: Mapping[str, Proxy] = {}
        self.engines: Sequence[Engine] = ()
        self.clock: Clockwork | None = self._grounds.clock
        self.disk: Disk | None = self._grounds.disk
        arguments = [
            *("server", "--data", str(self._grounds.data), "--port", str(port), "--http-port", str(http_port)),
            *options_of(LEDGER, UNLIMITED, LOGGING),
        ]
        self._programs = [self._grounds.program("server", "server", arguments)]

    async def start(self) -> None:
        """Returns once jobs can be submitted and are run."""
        await self._programs[0].start()
        for number in range(1, WORKERS + 1):
            worker = self._grounds.program("worker", f"worker-{number}", self._worker_arguments())
            self._programs.append(worker)
            await worker.start()

    def _worker_arguments(self) -> list[str]:
        return ["worker", "-A", self._grounds.app, "--connect", self._server, *options_of(WORKER, LOGGING)]

    def processes(self) -> list[Process]:
        """The server and the workers."""
        return list(self._programs)

    def expect(self, pid: int) -> None:
        """A fault is about to kill this process."""
        self._grounds.deaths.expect(pid)

    def strange(self) -> list[str]:
        """What went wrong that no fault explains."""
        return [*self._grounds.deaths.strange, *_odd_lines(self._programs)]

    async def stop(self) -> None:
        """Workers first, so that they are heard; what is on the small disk is kept."""
        try:
            for program in reversed(self._programs):
                self._grounds.deaths.strange += await program.stop()
        finally:
            self._grounds.close()

    def facts(self) -> list[Record]:
        """What the journal says."""
        return ledger_facts.read(self._grounds.data, "ledger")


def _odd_lines(programs: Sequence[KeptProgram]) -> list[str]:
    found: list[str] = []
    for program in programs:
        log = Log(program.log)
        with contextlib.suppress(FileNotFoundError):
            log.read()
        found += [*log.strange, *log.refusals]
    return found
