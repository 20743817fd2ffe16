"""One trial: one measure of one system in a process of its own, so that systems do not affect each other."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from holdfast_lab.peers import trial_environment
from holdfast_lab.peers.measures import MEASURES
from holdfast_lab.peers.stores import MODES, running
from holdfast_lab.peers.system import System, SystemDescription
from holdfast_lab.peers.systems import KILL, SYSTEMS, load
from holdfast_lab.peers.worker_kill import JOB_S, KillOutcome, kill_worker

_LOG_BYTES = 2_000


class TrialOutput(msgspec.Struct, frozen=True):
    """The output of a trial."""

    about: SystemDescription
    values: dict[str, float] = {}
    kill: KillOutcome | None = None


@contextmanager
def system_at(name: str, mode: str, folder: Path, workers: int) -> Iterator[System]:
    """The system over an empty store in this folder, for a trial with this many worker processes."""
    with ExitStack() as stack:
        os.environ[trial_environment.WORKERS] = str(workers)
        os.environ[trial_environment.FOLDER] = str(folder)
        if store := SYSTEMS[name].store:
            os.environ[trial_environment.STORE] = stack.enter_context(running(store, folder, mode))
        system = load(name)
        stack.callback(system.close)
        yield system


def run(name: str, mode: str, measure: str, seconds: float) -> TrialOutput:
    """The trial, in a temporary folder; if it fails, the ends of all logs are printed."""
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        try:
            with system_at(name, mode, folder, SYSTEMS[name].workers.get(measure, 0)) as system:
                if measure == KILL:
                    return TrialOutput(system.about, kill=kill_worker(system, job_s=min(seconds, JOB_S)))
                return TrialOutput(system.about, values=MEASURES[measure](system, seconds))
        except BaseException:
            _show_logs(folder)
            raise


def _show_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-_LOG_BYTES:]}", file=sys.stderr)


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("measure", choices=[*MEASURES, KILL])
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    # TERM raises SystemExit, so that workers and the store are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    told = run(arguments.system, arguments.mode, arguments.measure, arguments.seconds)
    print(msgspec.json.encode(told).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
