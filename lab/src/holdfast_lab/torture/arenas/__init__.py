"""Arenas: each runs a topology as real processes in a folder, and reads the state of its store at the end."""

from importlib import import_module
from pathlib import Path

from holdfast_lab.torture.ports import Arena

#: The app that workers run.
APP = "holdfast_lab.torture.jobs:app"


#: Module and factory of each topology's arena.
_MAKERS = {
    "embedded": ("embedded", "EmbeddedArena"),
    "microservices": ("microservices", "microservices"),
    "monolith": ("monolith", "monolith"),
    "pipeline": ("pipeline", "PipelineArena"),
    "zookeeper": ("zookeeper", "ZooKeeperArena"),
}
TOPOLOGIES = tuple(_MAKERS)


def arena_of(topology: str, folder: Path, *, app: str = APP) -> Arena:
    """Returns the arena of a topology, in a folder that it creates; imports only the modules that this arena needs."""
    module, maker = _MAKERS[topology]
    made: Arena = getattr(import_module(f"{__name__}.{module}"), maker)(folder, app)
    return made
