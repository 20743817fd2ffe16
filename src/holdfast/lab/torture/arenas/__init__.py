"""Arenas: every topology as real processes in a folder, and what its store says once they have ended."""

from importlib import import_module
from pathlib import Path

from holdfast.lab.torture.ports import Arena

#: What workers run.
APP = "holdfast.lab.torture.jobs:app"


#: Where the arena of each topology is made.
_MAKERS = {
    "embedded": ("embedded", "EmbeddedArena"),
    "microservices": ("microservices", "microservices"),
    "monolith": ("monolith", "monolith"),
    "pipeline": ("pipeline", "PipelineArena"),
    "zookeeper": ("zookeeper", "ZooKeeperArena"),
}
TOPOLOGIES = tuple(_MAKERS)


def arena_of(topology: str, folder: Path, *, app: str = APP) -> Arena:
    """The arena of a topology, in a folder that it makes; only what it needs is loaded."""
    module, maker = _MAKERS[topology]
    made: Arena = getattr(import_module(f"{__name__}.{module}"), maker)(folder, app)
    return made
