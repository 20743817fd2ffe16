"""The systems, one file each; a file is imported only when its system is measured."""

from importlib import import_module

import msgspec

from holdfast_lab.peers.system import System

_HERE = "holdfast_lab.peers.systems"


class Entry(msgspec.Struct, frozen=True):
    """The adapter of a system, and whether it needs a Redis."""

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
    """The system of this name, as configured by the environment."""
    entry = SYSTEMS[name]
    system: System = getattr(import_module(f"{_HERE}.{entry.module}"), entry.name)()
    return system
