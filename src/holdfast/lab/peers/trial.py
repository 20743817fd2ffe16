"""One trial: one measure of one system in a process of its own, so that no peer meets what another has left."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from holdfast.lab.peers import place
from holdfast.lab.peers.killing import JOB_S, Kill, kill_worker
from holdfast.lab.peers.measures import MEASURES
from holdfast.lab.peers.redis_server import MODES, redis_server
from holdfast.lab.peers.results import OWN
from holdfast.lab.peers.system import About, System
from holdfast.lab.peers.systems import SYSTEMS, load

KILL = "kill"
_LOG_BYTES = 2_000


class Told(msgspec.Struct, frozen=True):
    """What a trial prints."""

    about: About
    values: dict[str, float] = {}
    kill: Kill | None = None


def modes_of(name: str) -> list[str]:
    """In which modes a system is measured."""
    return list(MODES) if SYSTEMS[name].is_on_redis else [OWN]


@contextmanager
def system_at(name: str, mode: str, folder: Path) -> Iterator[System]:
    """The system over a fresh store in this folder."""
    with ExitStack() as stack:
        os.environ[place.FOLDER] = str(folder)
        if mode != OWN:
            os.environ[place.REDIS] = stack.enter_context(redis_server(folder, mode))
        system = load(name)
        stack.callback(system.close)
        yield system


def run(name: str, mode: str, measure: str, seconds: float) -> Told:
    """The trial, in a temporary folder; what workers wrote is shown if it fails."""
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        try:
            with system_at(name, mode, folder) as system:
                if measure == KILL:
                    return Told(system.about, kill=kill_worker(system, job_s=min(seconds, JOB_S)))
                return Told(system.about, values=MEASURES[measure](system, seconds))
        except BaseException:
            _show_logs(folder)
            raise


def _show_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-_LOG_BYTES:]}", file=sys.stderr)


def main() -> int:
    """Prints what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("mode", choices=[*MODES, OWN])
    parser.add_argument("measure", choices=[*MEASURES, KILL])
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    # So that workers and Redis go too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    told = run(arguments.system, arguments.mode, arguments.measure, arguments.seconds)
    print(msgspec.json.encode(told).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
