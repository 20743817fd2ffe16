"""The systems, one small file each. Each is imported only where it is measured."""

from importlib import import_module

import msgspec

from holdfast.lab.peers.system import System

_HERE = "holdfast.lab.peers.systems"


class Entry(msgspec.Struct, frozen=True):
    """Where a system's adapter is, and whether it needs a Redis."""

    module: str
    name: str
    is_on_redis: bool = True


SYSTEMS = {
    "holdfast-directory": Entry("holdfast", "HoldfastDirectory", is_on_redis=False),
    "holdfast-server": Entry("holdfast", "HoldfastServer", is_on_redis=False),
    "celery": Entry("celery", "Celery"),
    "dramatiq": Entry("dramatiq", "Dramatiq"),
    "huey": Entry("huey", "Huey"),
    "rq": Entry("rq", "Rq"),
    "rq-simple": Entry("rq", "RqSimple"),
    "saq": Entry("saq", "Saq"),
    "taskiq": Entry("taskiq", "Taskiq"),
}


def load(name: str) -> System:
    """The system of this name, in the place that the environment tells."""
    entry = SYSTEMS[name]
    system: System = getattr(import_module(f"{_HERE}.{entry.module}"), entry.name)()
    return system
