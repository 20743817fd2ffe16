"""`python -m holdfast.lab.faults.restarts`: a job whose server restarts, while its worker lives.

Three cases: the wall clock is a minute ahead after a kill and after an orderly stop (the lease is 30 s), and an orderly
stop of six seconds with a lease of four.
"""

import argparse
import asyncio
import signal
import socket
import sys
import tempfile
from pathlib import Path

from holdfast.lab.faults.one_job import Fate, fate, program, running_job, say, server_arguments, start
from holdfast.lab.torture.faults.clockwork import FileClock

_JOB_MS = 9_000


async def measure(case: str, ending: signal.Signals, *more: str, ahead_ms: int = 0, away_s: float = 0.0) -> Fate:
    """What became of the job."""
    with tempfile.TemporaryDirectory(prefix="holdfast-restarts-") as name:
        folder = Path(name)
        clock = FileClock(folder / "clock")
        arguments = server_arguments(_free_port(), *more)
        server = await start(folder, *arguments, environment=clock.environment)
        try:
            target = str(server.ready["grpc"])
            async with program(folder, "worker", "--connect", target, "--slots", "1"):
                tail = await running_job(folder, target, _JOB_MS)
                await server.end(ending)
                clock.step(ahead_ms)
                await asyncio.sleep(away_s)
                server = await start(folder, *arguments, environment=clock.environment)
                return await fate(case, tail)
        finally:
            await server.end(signal.SIGKILL)


async def measure_all() -> list[Fate]:
    """One case after the other."""
    short = ("--lease-ms", "4000")
    return [
        await measure("restart after kill -9, clock +60 s", signal.SIGKILL, ahead_ms=60_000),
        await measure("restart after TERM, clock +60 s", signal.SIGTERM, ahead_ms=60_000),
        await measure("orderly stop of 6 s, lease 4 s", signal.SIGTERM, *short, away_s=6.0),
    ]


def _free_port() -> int:
    """A port that the server can have again after its restart, most likely."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Reads the options, measures, and leaves no process."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.lab.faults.restarts", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    say(asyncio.run(measure_all()), as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
