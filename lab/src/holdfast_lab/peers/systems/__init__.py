"""The systems, one file each; a file is imported only when its system is measured."""

from importlib import import_module

import msgspec

from holdfast_lab.peers.stores import BEANSTALKD, NATS, ONLY_SYNCED, REDIS, PeerStore
from holdfast_lab.peers.system import System

_HERE = "holdfast_lab.peers.systems"


class Entry(msgspec.Struct, frozen=True):
    """The adapter of a system, and the store that it needs; Holdfast brings its own."""

    module: str
    name: str
    store: PeerStore | None = REDIS

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
}


def load(name: str) -> System:
    """The system of this name, as configured by the environment."""
    entry = SYSTEMS[name]
    system: System = getattr(import_module(f"{_HERE}.{entry.module}"), entry.name)()
    return system
