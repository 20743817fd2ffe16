"""The steps of the demo: submit, watch, kill a worker, watch, show the history."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from holdfast import JobFailedError, JobView, State
from holdfast.core.lifecycle import TERMINAL
from holdfast.process.child_command import child_command
from holdfast_lab.demo import DATA_VARIABLE, display, plan
from holdfast_lab.demo.jobs import app
from holdfast_lab.measure.processes import ChildError, child, default_environment, next_line

Views = Mapping[str, JobView]
_NAMES = ("anna", "bert")
_COMMAND = child_command("holdfast", "worker", "-A", "holdfast_lab.demo.jobs:app", "-c", "4", "--lifeline")
_LOOK_S = 0.1
#: The progress of the backup at which its worker is killed.
_MIDDLE_PERMILLE = 200
_PATIENCE_S = 60.0


def run(console: Console, folder: Path) -> list[str]:
    """Run the demo; returns a sentence for each job that did not end as required."""
    with app:
        submitted = plan.submit(folder)
        count = len(plan.all_jobs(submitted.groups))
        console.print(
            f"{count} jobs are on disk in {folder}. Starting two workers ...", highlight=False, soft_wrap=True
        )
        with _workers(_NAMES, folder, folder / "data") as processes:
            return _DemoRun(console, submitted, processes).run()


class _DemoRun:
    def __init__(
        self, console: Console, submitted: plan.DemoPlan, processes: Mapping[str, subprocess.Popen[str]]
    ) -> None:
        self._console = console
        self._plan = submitted
        self._processes = processes

    def run(self) -> list[str]:
        with display.display(self._console, self._plan) as screen:
            self._cancel(screen)
            killed = self._kill(screen)
            views = self._watch(screen, lambda views: all(view.state in TERMINAL for view in views.values()))
        self._look_back(views)
        return plan.problems(self._plan, views, killed)

    def _cancel(self, screen: display.Display) -> None:
        job = self._plan.canceled
        screen.say(f"Why does the report not run? {job.why()}. It is canceled.")
        job.cancel("the demo does not need the report")

    def _kill(self, screen: display.Display) -> str:
        """Kill the worker that runs the backup, once the backup has reported progress."""
        job_id = self._plan.recovered.id
        views = self._watch(screen, lambda views: _permille(views[job_id]) >= _MIDDLE_PERMILLE)
        victim = views[job_id].worker
        process = self._processes[victim]
        process.kill()
        process.wait()
        screen.say(f"kill -9: worker {victim} (process {process.pid}) was killed during the backup.")
        return victim

    def _watch(self, screen: display.Display, is_enough: Callable[[Views], bool]) -> Views:
        """Poll until the predicate holds; returns the last value."""
        end_s = time.monotonic() + _PATIENCE_S
        while True:
            views = {job.id: job.seen for job in app.find() if job.seen is not None}
            screen.show(views)
            if is_enough(views):
                return views
            if time.monotonic() > end_s:
                raise RuntimeError(f"after {_PATIENCE_S:.0f} s some jobs are not in the expected state")
            time.sleep(_LOOK_S)

    def _look_back(self, views: Views) -> None:
        print_ = self._console.print
        print_(display.summary(self._plan.groups, views))
        print_("The invoice failed on its worker with this traceback:", highlight=False)
        print_(_traceback(self._plan), highlight=False, markup=False)
        print_("The history of the backup, whose worker was killed:", highlight=False)
        print_(display.history(self._plan.recovered.history()))


def _permille(view: JobView) -> int:
    return view.progress.permille if view.state == State.RUNNING and view.progress else -1


def _traceback(submitted: plan.DemoPlan) -> str:
    try:
        submitted.failing.result(timeout_s=1)
    except JobFailedError as error:
        return "\n".join(f"    {line}" for line in error.remote_traceback.rstrip().splitlines())
    return "    (it has not failed)"


@contextmanager
def _workers(names: Sequence[str], folder: Path, data: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Running workers by name; none is left after the block."""
    with ExitStack() as stack:
        started = {name: stack.enter_context(_worker(name, folder / f"{name}.log", data)) for name in names}
        try:
            for name, process in started.items():
                _await_ready(process, folder / f"{name}.log")
            yield started
        except BaseException:
            for process in started.values():
                process.kill()  # after a Ctrl-C, running jobs are not awaited
            raise


@contextmanager
def _worker(name: str, log: Path, data: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker whose lifeline, the standard input, ends it if the demo is killed."""
    with (
        log.open("wb") as errors,
        child(
            [*_COMMAND, "--worker-id", name],
            base=default_environment(),
            environment={DATA_VARIABLE: str(data)},
            stdin=subprocess.PIPE,
            errors=errors,
        ) as process,
    ):
        yield process


def _await_ready(process: subprocess.Popen[str], log: Path) -> None:
    try:
        next_line(process)
    except ChildError:
        raise RuntimeError(f"a worker ended before it was ready:\n{log.read_text()}") from None
