"""Attempts in threads, in real child processes and on the loop: their failures, timeouts and cancels."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import Note
from holdfast.ports import Assignment
from holdfast.worker.config import WorkerConfig
from holdfast.worker.context import JobContext
from holdfast.worker.executors.port import Ended
from holdfast.worker.slots import Slots
from tests.e2e.jobs_app import app

LIMIT = 1 << 30


class Bench:
    """Slots, and the outcomes that they report."""

    def __init__(self, config: WorkerConfig) -> None:
        self.rows: asyncio.Queue[ReportRow] = asyncio.Queue()
        self.notes: list[Note] = []
        self.slots = Slots(app.handlers(), config, self._ended, lambda _: None)
        self._token = 0

    def _ended(self, ended: list[Ended]) -> None:
        for context, row in ended:
            note = context.take_note()
            self.notes += [note] if note else []
            self.rows.put_nowait(row)

    def start(self, job_type: str, file: Path | str = "", timeout_ms: int = 0) -> JobContext:
        self._token += 1
        payload = str(file).encode()
        self.slots.take([Assignment(self._token, f"job-{self._token}", job_type, payload, timeout_ms=timeout_ms)])
        return self.slots.contexts[self._token]

    async def run(self, job_type: str, file: Path | str = "", timeout_ms: int = 0) -> ReportRow:
        self.start(job_type, file, timeout_ms)
        return await self.rows.get()


@asynccontextmanager
async def bench(**config: object) -> AsyncIterator[Bench]:
    chosen = {"app_path": "tests.e2e.jobs_app:app", "slots": 2, "kill_grace_ms": 200, "child_memory_bytes": LIMIT}
    made = Bench(WorkerConfig("w", **{**chosen, **config}))  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.slots.close()


@pytest.fixture(autouse=True)
def at_the_top(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the current directory the root, so that child processes find the app."""
    monkeypatch.chdir(root)


async def appears(file: Path) -> str:
    """Waits until the file has content and returns it."""
    while not (text := _text(file)):  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    return text


async def is_gone(pid: int) -> None:
    """Waits until the process has ended or is a zombie."""
    while " Z " not in _text(Path(f"/proc/{pid}/stat"), " Z "):  # noqa: ASYNC110 - the kernel sends no event
        await asyncio.sleep(0.01)


def _text(file: Path, otherwise: str = "") -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return otherwise


FOUND_BY: list[tuple[str, str, bool]] = [
    ("allocate", "MemoryError", True),
    ("large", "OUTPUT_TOO_LARGE", False),
    ("text", "OUTPUT_NOT_BYTES", False),
    ("bad", "ValueError: bad ?", True),
    ("unshowable", "UnshowableError: it cannot be shown", True),
    ("leave_politely", "SystemExit: 3", True),
    ("interrupt", "KeyboardInterrupt", True),
]


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_every_failure_of_job_code_has_its_reason(mode: str) -> None:
    """Every kind of failure of job code has its reason, and the executor runs the next job."""
    async with bench() as here:
        for name, reason, is_retryable in FOUND_BY:
            row = await here.run(f"{mode}.{name}")
            assert (row.state, row.failure_reason, row.is_retryable) == (FAILED, reason, is_retryable)
        row = await here.run(f"{mode}.echo", "still here")
        assert (row.state, row.output) == (DONE, b"still here")


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_exception_leaves_its_type_its_words_and_the_users_traceback(mode: str) -> None:
    """A failure description has the exception's type, its message and the traceback of the user's code only."""
    async with bench() as here:
        shown = json.loads((await here.run(f"{mode}.bad")).output)
        assert (shown["type"], shown["message"]) == ("ValueError", "bad ?")
        assert "jobs_app.py" in shown["traceback"]
        assert "holdfast/worker" not in shown["traceback"]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("segfault", "killed by signal 11 (SIGSEGV)"),
        ("leave", "exited with status 3"),
        ("kill", "killed by signal 9 (SIGKILL)"),
    ],
)
async def test_child_that_dies_costs_its_attempt_only(name: str, how: str) -> None:
    """A child that dies fails only its attempt, with the cause, as retryable, and a new child replaces it."""
    async with bench(slots=1) as here:
        row = await here.run(f"process.{name}")
        assert (row.state, row.failure_reason, row.is_retryable) == (FAILED, f"PROCESS_DIED: {how}", True)
        assert here.slots.tally.children_died == 1
        assert (await here.run("process.echo", "x")).state == DONE


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("close_everything", ""),  # by its own error, or because its connection ended: whichever is first
        ("scribble", "killed by signal 9 (SIGKILL)"),
        ("make_up", "killed by signal 9 (SIGKILL)"),
        ("fork_and_leave", "exited with status 3"),
    ],
)
async def test_child_that_cannot_be_understood_is_ended(name: str, how: str) -> None:
    """A child whose socket is closed, sends invalid data or is held open by another process is killed."""
    async with bench(slots=1) as here:
        assert (await here.run(f"process.{name}")).failure_reason.startswith(f"PROCESS_DIED: {how}")
        assert (await here.run("process.echo", "x")).state == DONE


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_fork_of_job_code_ends_with_it(mode: str) -> None:
    """A process that job code forks ends with the job's code, and only the parent reports an outcome."""
    async with bench(slots=1) as here:
        for name, output in (("fork_and_return", b"0"), ("fork_and_exit", b"5"), ("fork_and_return", b"0")):
            assert (await here.run(f"{mode}.{name}")).output == output
        assert here.rows.empty()


async def test_child_that_takes_all_memory_fails_within_its_limit() -> None:
    """A child that exceeds its memory limit fails its attempt with MemoryError and stays alive."""
    async with bench(slots=1, child_memory_bytes=256 << 20) as here:
        assert (await here.run("process.hoard")).failure_reason == "MemoryError"
        assert here.slots.tally.children_died == 0


async def test_killed_child_is_noticed(tmp_path: Path) -> None:
    """A child that another process kills fails its attempt with the signal."""
    async with bench() as here:
        here.start("process.hold", tmp_path / "pid")
        os.kill(int(await appears(tmp_path / "pid")), signal.SIGKILL)
        assert (await here.rows.get()).failure_reason == "PROCESS_DIED: killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    "job_type", ["thread.spin", "process.spin", "process.stuck", "process.stubborn", "async.ahold"]
)
async def test_attempt_that_takes_too_long_is_ended(tmp_path: Path, job_type: str) -> None:
    """An attempt that exceeds its timeout fails with TIMEOUT, is counted, and frees its slot."""
    async with bench(slots=1) as here:
        if job_type.startswith("process"):
            await here.run("process.echo")
        children = here.slots.processes.pids
        row = await here.run(job_type, tmp_path / "pid", timeout_ms=100)
        assert (row.state, row.failure_reason) == (FAILED, "TIMEOUT")
        assert here.slots.tally.timeouts == 1
        for pid in children:
            await is_gone(pid)
        assert (await here.run("thread.echo", "x")).state == DONE


@pytest.mark.parametrize(
    "job_type", ["thread.spin", "thread.clean_up", "process.spin", "process.stubborn", "async.ahold"]
)
async def test_running_attempt_is_canceled(tmp_path: Path, job_type: str) -> None:
    """A cancel ends a running attempt, whether or not it checks its context."""
    async with bench(slots=1) as here:
        context = here.start(job_type, tmp_path / "pid")
        await appears(tmp_path / "pid")
        here.slots.interrupt(context)
        assert (await here.rows.get()).state == CANCELED
        assert (await here.run("thread.echo", "x")).state == DONE


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_canceled_job_can_clean_up(tmp_path: Path, mode: str) -> None:
    """The `finally` of a canceled job runs before the attempt ends."""
    async with bench(kill_grace_ms=60_000) as here:
        context = here.start(f"{mode}.clean_up", tmp_path / "word")
        await appears(tmp_path / "word")
        here.slots.interrupt(context)
        assert (await here.rows.get()).state == CANCELED
        assert (tmp_path / "word").read_text() == "cleaned"


async def test_kill_ends_the_processes_that_the_attempt_started(tmp_path: Path) -> None:
    """Killing an attempt also kills the processes that it has started."""
    async with bench() as here:
        context = here.start("process.parent", tmp_path / "pid")
        grandchild = int(await appears(tmp_path / "pid"))
        here.slots.interrupt(context)
        assert (await here.rows.get()).state == CANCELED
        await is_gone(grandchild)


@pytest.mark.parametrize("job_type", ["thread.stuck", "async.swallow"])
async def test_attempt_that_ignores_its_interrupt_is_written_off_and_its_slot_replaced(
    tmp_path: Path, job_type: str
) -> None:
    """An attempt that does not end after its interrupt is written off, and its slot is replaced."""
    async with bench(slots=1) as here:
        timeout_ms = 50
        while not here.slots.tally.written_off:  # an attempt that is interrupted before it is stuck ends normally
            row = await here.run(job_type, tmp_path / "pid", timeout_ms)
            assert (row.state, row.failure_reason) == (FAILED, "TIMEOUT")
            timeout_ms *= 2
        assert here.slots.tally.written_off == 1
        (tmp_path / "pid").unlink(missing_ok=True)  # a slow disk could also have blocked the attempt
        assert (await here.run("thread.echo", "x")).output == b"x"


@pytest.mark.parametrize("job_type", ["thread.echo", "process.echo", "async.abad"])
async def test_canceled_backlog_never_runs(tmp_path: Path, job_type: str) -> None:
    """A canceled attempt that waits for a slot is reported at once and never runs."""
    async with bench(slots=1) as here:
        here.start("thread.hold", tmp_path / "pid")
        await appears(tmp_path / "pid")
        here.slots.interrupt(here.start(job_type))
        row = await here.rows.get()
        assert (row.state, row.job_id) == (CANCELED, "job-2")
        (tmp_path / "pid").unlink()
        assert (await here.rows.get()).output == b"held"


async def test_modes_share_the_slots(tmp_path: Path) -> None:
    """With one slot, attempts of all modes run one at a time, in the order of their arrival."""
    async with bench(slots=1) as here:
        here.start("thread.hold", tmp_path / "pid")
        await appears(tmp_path / "pid")
        for job_type in ("async.abad", "thread.echo", "process.echo", "thread.echo"):
            here.start(job_type)
        assert here.slots.backlog == 4
        (tmp_path / "pid").unlink()
        tokens = [(await here.rows.get()).token for _ in range(5)]
        assert tokens[:2] == [1, 2]
        assert sorted(tokens) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_job_speaks_and_prints(mode: str) -> None:
    """Progress and log lines reach the worker in every mode, and printed output disturbs nothing."""
    async with bench() as here:
        assert (await here.run(f"{mode}.say")).output == f"{mode}.say".encode()
        assert here.notes == [Note("job-1", 1, 250, "a quarter", ("a line",))]


async def test_children_are_kept_warm_and_replaced_by_age() -> None:
    """A child runs `max_jobs` jobs and is then replaced."""
    async with bench(slots=1, max_jobs=2) as here:
        pids = [(await here.run("process.nap")).output for _ in range(4)]
        assert pids[0] == pids[1]
        assert pids[2] == pids[3]
        assert pids[0] != pids[2]
        assert here.slots.tally.children_recycled == 2


async def test_children_are_replaced_by_size() -> None:
    """A child that exceeds the memory limit for reuse is replaced."""
    async with bench(slots=1, max_memory_bytes=60 << 20) as here:
        pids = {(await here.run("process.grow")).output for _ in range(3)}
        assert len(pids) >= 2


async def test_children_end_with_the_worker(tmp_path: Path) -> None:
    """All children end with the worker, busy or not."""
    async with bench() as here:
        here.start("process.stubborn", tmp_path / "pid")
        pid = int(await appears(tmp_path / "pid"))
    await is_gone(pid)


async def test_many_threads_and_interrupts_lose_no_attempt() -> None:
    """Cancels at every point of short attempts leave one outcome for each, and no unusable slot."""
    async with bench(slots=4) as here:
        for _ in range(300):
            contexts = [here.start("thread.echo", "x") for _ in range(5)]
            await asyncio.sleep(0)
            for context in contexts:
                here.slots.interrupt(context)
        states = {(await here.rows.get()).state for _ in range(1_500)}
        assert states <= {DONE, CANCELED}
        assert here.slots.contexts == {}
        assert (await here.run("thread.echo", "x")).state == DONE
