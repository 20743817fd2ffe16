"""A job whose worker's connection is reset again and again: `python -m holdfast_lab.faults.resets`.

Worker and server are healthy and have their default settings. A TCP proxy between them resets every connection four
times within seven seconds, while one job runs.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from holdfast_lab.faults.one_job import JobOutcome, fate, program, running_job, server_arguments, show_fates
from holdfast_lab.measure.command import parser
from holdfast_lab.torture.faults.proxy import TcpProxy


async def measure(resets: int, over_s: float) -> JobOutcome:
    """Returns the outcome of the job."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-resets-")))
        _, ready = stack.enter_context(program(folder, *server_arguments(0)))
        host, _, port = ready["wire"].rpartition(":")
        proxy = await TcpProxy.open(host, int(port))
        stack.push_async_callback(proxy.close)
        # In a thread: the worker is ready once it has connected through the proxy, which needs the event loop.
        started = program(folder, "worker", "--connect", proxy.address, "--slots", "1")
        worker, _ = await asyncio.to_thread(stack.enter_context, started)
        tail = await running_job(folder, ready["grpc"], int(over_s * 1_000) + 1_000)
        for _ in range(resets):
            await asyncio.sleep(over_s / resets)
            proxy.cut()
        found = await fate(f"{resets} resets in {over_s:g} s", tail)
        worker.kill()  # an orderly stop would need the proxy
        return found


def main() -> None:
    """Reads the options, measures, and leaves no process."""
    options = parser(__doc__)
    options.add_argument("--resets", type=int, default=4, help="how many (default: 4)")
    options.add_argument("--over-s", type=float, default=7.0, help="within how many seconds (default: 7)")
    given = options.parse_args()
    if given.resets < 1 or given.over_s <= 0:
        options.error("expected --resets to be at least 1 and --over-s to be more than 0")
    show_fates([asyncio.run(measure(given.resets, given.over_s))], as_json=given.json)


if __name__ == "__main__":
    main()
