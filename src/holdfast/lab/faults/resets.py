"""`python -m holdfast.lab.faults.resets`: a job whose worker's connection is reset again and again.

Worker and server are healthy, with their default settings; a TCP proxy between them resets every connection four times
within seven seconds, while one job runs.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from holdfast.lab.faults.one_job import Fate, fate, program, running_job, say, server_arguments
from holdfast.lab.torture.faults.proxy import TcpProxy


async def measure(resets: int, over_s: float) -> Fate:
    """What became of the job."""
    with tempfile.TemporaryDirectory(prefix="holdfast-resets-") as name:
        folder = Path(name)
        async with program(folder, *server_arguments(0)) as server:
            target = str(server.ready["grpc"])
            host, _, port = target.rpartition(":")
            proxy = await TcpProxy.open(host, int(port))
            try:
                async with program(folder, "worker", "--connect", proxy.address, "--slots", "1"):
                    tail = await running_job(folder, target, int(over_s * 1_000) + 1_000)
                    for _ in range(resets):
                        await asyncio.sleep(over_s / resets)
                        proxy.cut()
                    return await fate(f"{resets} resets in {over_s:g} s", tail)
            finally:
                await proxy.close()


def main() -> int:
    """Reads the options, measures, and leaves no process."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.lab.faults.resets", description=__doc__)
    parser.add_argument("--resets", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--over-s", type=float, default=7.0, help="within how many seconds (default: 7)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.resets < 1 or arguments.over_s <= 0:
        parser.error("expected --resets to be at least 1 and --over-s to be more than 0")
    say([asyncio.run(measure(arguments.resets, arguments.over_s))], as_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
