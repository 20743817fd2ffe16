"""`holdfast job watch` and `holdfast job history`: the events of one job, live and past."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.connection import Connect, ServerConnection, ask
from holdfast.cli.text import Json, as_clock, as_span, print_json, printable
from holdfast.core.lifecycle import DONE, RUNNING, TERMINAL
from holdfast.errors import ExitCode

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from holdfast.client.link import Client
    from holdfast.ports import JobView

#: A watch fails if the server is unreachable for longer than this.
_PATIENCE_S = 60.0

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]


def watch(job_id: JobId, connect: Connect = None, as_json: Json = False) -> None:
    """Show a job's changes and progress until it ends. Exits with 1 if it failed or was canceled."""
    screen: _JsonLines | _Lines | _Bar = _JsonLines() if as_json else _Bar() if sys.stdout.isatty() else _Lines()
    with ServerConnection(connect) as server:
        server.ask(lambda client: client.get(job_id))  # reports a wrong id or address at once
        last = server.wait_for(lambda client: _watch(client, job_id, screen), _PATIENCE_S)
    if last.state != DONE:
        raise typer.Exit(ExitCode.JOB_FAILED)


def history(job_id: JobId, connect: Connect = None, as_json: Json = False) -> None:
    """Show all events of a job, as far back as the journal is kept."""
    found = ask(connect, lambda client: client.history(job_id))
    from holdfast.cli.views import print_entries

    print_entries(found, as_json=as_json, has_ids=False)


async def _watch(client: "Client", job_id: str, screen: "_JsonLines | _Lines | _Bar") -> "JobView":
    """Shows every change of the job; returns it once it has ended."""
    last: JobView | None = None
    try:
        async for seen in client.watch(job_id):
            screen.show(seen)
            last = seen
    finally:
        screen.close()
    assert last is not None, "a watch starts with the current state of the job"
    return last


class _JsonLines:
    """Prints one line of JSON per change."""

    def show(self, job: "JobView") -> None:
        from holdfast.cli.views import job_json

        print_json(job_json(job))

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class _Lines:
    """Prints one line per visible change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, job: "JobView") -> None:
        line = _sentence(job)
        if line != self._last:
            self._last = line
            self.print(f"{as_clock(_changed_ms(job))}  {printable(line)}")

    def print(self, line: str) -> None:
        print(line, flush=True)

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class _Bar(_Lines):
    """For terminals: prints one line per change of state, and a bar below them while the job reports progress."""

    def __init__(self) -> None:
        super().__init__()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._state = (0, 0)

    def show(self, job: "JobView") -> None:
        if job.progress is None or job.state != RUNNING:
            self.close()
            super().show(job)
            self._state = (job.state, job.attempts)
            return
        if self._state != (job.state, job.attempts):  # one line for the attempt, before its bar
            self._state = (job.state, job.attempts)
            self.print(f"{as_clock(job.started_ms)}  {printable(_running(job))}")
        self._move(job.progress.permille, job.progress.message)

    def _move(self, permille: int, message: str) -> None:
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        if self._progress is None:
            columns = (BarColumn(complete_style="cyan"), TaskProgressColumn(), TextColumn("{task.description}"))
            self._progress = Progress(*columns, transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=1_000)
        assert self._task is not None
        self._progress.update(self._task, completed=max(permille, 0), description=escape(printable(message)))

    def close(self) -> None:
        """Removes the bar; the lines stay."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _sentence(job: "JobView") -> str:
    from holdfast.cli.views import progress_words

    if job.state == RUNNING:
        return " ".join(part for part in (_running(job), progress_words(job)) if part)
    if job.state in TERMINAL:
        took = f" after {as_span(job.finished_ms - job.created_ms)}"
        return f"{job.state.name}{took}{': ' + job.failure_reason if job.failure_reason else ''}"
    return f"{job.state.name}{f', tried {job.attempts} times' if job.attempts else ''}"


def _running(job: "JobView") -> str:
    asked = ", cancel requested" if job.cancel_requested else ""
    return f"{job.state.name} attempt {job.attempts}{f' on {job.worker}' if job.worker else ''}{asked}"


def _changed_ms(job: "JobView") -> int:
    """Returns the time of the change that is shown, as far as the job records it."""
    if job.state in TERMINAL:
        return job.finished_ms
    if job.state == RUNNING:
        return job.progress.at_ms if job.progress else job.started_ms
    return job.created_ms
