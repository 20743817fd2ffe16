"""The systems, one file each; a file is imported only when its system is measured."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

import msgspec

from holdfast_lab.peers.stores import BEANSTALKD, NATS, ONLY_SYNCED, POSTGRES, REDIS, PeerStore
from holdfast_lab.peers.system import System

KILL = "kill"
_HERE = "holdfast_lab.peers.systems"
_SPEEDS = ("bulk_enqueue", "submit_one_by_one", "end_to_end", "idle_latency")
_CONCURRENT = (*_SPEEDS, "submit_together")


class Entry(msgspec.Struct, frozen=True):
    """The adapter of a system, and the store that it needs; Holdfast brings its own."""

    module: str
    name: str
    store: PeerStore | None = REDIS
    #: The measures of speed that the system is made for.
    measures: tuple[str, ...] = _SPEEDS
    #: Worker processes, by measure; the others are measured without a worker.
    workers: Mapping[str, int] = MappingProxyType({"end_to_end": 2, "idle_latency": 2, KILL: 2})

    @property
    def modes(self) -> list[str]:
        """The modes in which the system is measured."""
        return list(self.store.modes) if self.store else [ONLY_SYNCED]


SYSTEMS = {
    "holdfast-directory": Entry("holdfast", "HoldfastDirectory", None),
    "holdfast-server": Entry("holdfast", "HoldfastServer", None),
    "celery": Entry("celery", "Celery"),
    "dramatiq": Entry("dramatiq", "Dramatiq"),
    "huey": Entry("huey", "Huey"),
    "huey-tuned": Entry("huey", "HueyTuned"),
    "rq": Entry("rq", "Rq"),
    "rq-simple": Entry("rq", "RqSimple"),
    "saq": Entry("saq", "Saq"),
    "taskiq": Entry("taskiq", "Taskiq"),
    "nats": Entry("nats", "NatsJetStream", NATS),
    "beanstalkd": Entry("beanstalkd", "Beanstalkd", BEANSTALKD),
    "holdfast-pipeline": Entry(
        "holdfast_pipeline", "HoldfastPipeline", POSTGRES, _CONCURRENT, {"end_to_end": 3, "idle_latency": 3}
    ),
    # One worker process is its best in an idle system, three are its best under load.
    "procrastinate": Entry(
        "procrastinate", "Procrastinate", POSTGRES, _CONCURRENT, {"end_to_end": 3, "idle_latency": 1}
    ),
}
#: The systems of a comparison that names none: those over PostgreSQL are compared with each other.
DEFAULT_SYSTEMS = [name for name, entry in SYSTEMS.items() if entry.store is not POSTGRES]


def load(name: str) -> System:
    """The system of this name, as configured by the environment."""
    entry = SYSTEMS[name]
    system: System = getattr(import_module(f"{_HERE}.{entry.module}"), entry.name)()
    return system
