"""A job whose server restarts while its worker runs: `python -m holdfast_lab.faults.restart_during_job`.

Three cases: the wall clock is a minute ahead after a kill and after a graceful stop (the lease is 30 s), and a graceful
stop of six seconds with a lease of four.
"""

import asyncio
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

from holdfast_lab.faults.one_job import JobOutcome, fate, program, running_job, server_arguments, show_fates
from holdfast_lab.measure.command import parser
from holdfast_lab.measure.reserved_ports import Ports
from holdfast_lab.torture.faults.clock_file import FileClock

_JOB_MS = 9_000


async def measure(case: str, ending: signal.Signals, *more: str, ahead_ms: int = 0, away_s: float = 0.0) -> JobOutcome:
    """Returns the outcome of the job."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-restarts-")))
        ports = Ports(1)
        stack.callback(ports.close)
        clock = FileClock(folder / "clock")
        arguments = server_arguments(ports.first, *more)
        server, _ = stack.enter_context(program(folder, *arguments, environment=clock.environment))
        target = ports.addresses[0]
        stack.enter_context(program(folder, "worker", "--connect", target, "--slots", "1"))
        tail = await running_job(folder, target, _JOB_MS)
        server.send_signal(ending)
        server.wait()
        clock.step(ahead_ms)
        await asyncio.sleep(away_s)
        stack.enter_context(program(folder, *arguments, environment=clock.environment))
        return await fate(case, tail)


async def measure_all() -> list[JobOutcome]:
    """Measures one case after the other."""
    short = ("--lease-ms", "4000")
    return [
        await measure("restart after kill -9, clock +60 s", signal.SIGKILL, ahead_ms=60_000),
        await measure("restart after TERM, clock +60 s", signal.SIGTERM, ahead_ms=60_000),
        await measure("orderly stop of 6 s, lease 4 s", signal.SIGTERM, *short, away_s=6.0),
    ]


def main() -> None:
    """Print the fate of the job in each case."""
    given = parser(__doc__).parse_args()
    show_fates(asyncio.run(measure_all()), as_json=given.json)


if __name__ == "__main__":
    main()
