"""Slow syncs: a tracer delays every fsync and fdatasync of a process before it begins."""

import asyncio
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast_lab.torture.ports import NotNowError

_CALLS = "fsync,fdatasync"
#: The mark of strace for a delayed call.
_HELD_UP = b"(DELAYED)"
_ATTACH_S = 10.0
_DETACH_S = 10.0
_CHECK_S = 20.0


@asynccontextmanager
async def slow_syncs(pids: Sequence[int], delay_s: float) -> AsyncIterator[Callable[[], int]]:
    """Delays the syncs of the processes while the block runs; yields a function that counts delayed syncs.

    Raises `NotNowError` if none of the processes could be traced.
    """
    with TemporaryDirectory(prefix="holdfast-torture-") as folder:
        notes = Path(folder) / "syncs"
        async with _traced(pids, delay_s, notes):
            yield lambda: notes.read_bytes().count(_HELD_UP) if notes.exists() else 0


@asynccontextmanager
async def _traced(pids: Sequence[int], delay_s: float, output: Path) -> AsyncIterator[None]:
    """Runs strace, which writes a line to `output` for every sync."""
    tracer = await asyncio.create_subprocess_exec(
        *_command(pids, delay_s, output), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert tracer.stderr is not None
        try:
            await asyncio.wait_for(_attached(tracer.stderr), _ATTACH_S)
        except TimeoutError:
            raise NotNowError("strace does not attach") from None
        draining = asyncio.ensure_future(tracer.stderr.read())
        try:
            yield
        finally:
            draining.cancel()
    finally:
        await _end(tracer)


async def _attached(stderr: asyncio.StreamReader) -> None:
    """Returns once one process is attached: others may have ended meanwhile."""
    said = b""
    while line := await stderr.readline():
        if b" attached" in line:
            return
        said = line
    raise NotNowError(f"{said.decode(errors='replace').strip() or 'strace ended'}")


async def _end(tracer: asyncio.subprocess.Process) -> None:
    """Ends the tracer, which detaches its processes; if it must be killed, the kernel detaches them."""
    with suppress(ProcessLookupError):
        tracer.terminate()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(tracer.wait()), _DETACH_S)
    finally:
        if tracer.returncode is None:
            with suppress(ProcessLookupError):
                tracer.kill()
    await tracer.wait()


def _command(pids: Sequence[int], delay_s: float, output: Path) -> list[str]:
    program = shutil.which("strace")
    assert program is not None, "see lacking"
    inject = f"inject={_CALLS}:delay_enter={round(delay_s * 1_000_000)}"
    attached = [f"--attach={pid}" for pid in pids]
    return [program, "-f", "-e", f"trace={_CALLS}", "-e", inject, "-o", str(output), *attached]


@functools.cache
def lacking() -> str:
    """Returns the reason why this machine allows no tracing, or an empty string; tried once, on a child."""
    if shutil.which("strace") is None:
        return "there is no strace command (package strace)"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with subprocess.Popen(
            _command([child.pid], 0.001, Path(os.devnull)), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as tracer:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            tracer.terminate()
            tracer.communicate(timeout=_CHECK_S)
    finally:
        child.kill()
        child.communicate()
    return "" if " attached" in said else f"no process may be traced: {said.strip()}"
