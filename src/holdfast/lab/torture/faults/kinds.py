"""All kinds of faults."""

from collections.abc import Mapping

from holdfast.lab.torture.faults.bad_roads import BAD_ROADS, Cut, Delay
from holdfast.lab.torture.faults.killing import Kill, KillMany, KillStarting
from holdfast.lab.torture.faults.partitions import Partition
from holdfast.lab.torture.faults.stopping import EngineCrash, EngineStop, Stop
from holdfast.lab.torture.faults.surroundings import ClockStep, FullDisk, SlowDisk
from holdfast.lab.torture.ports import Fault

_ALL: tuple[Fault, ...] = (
    *(Kill(), KillStarting(), KillMany(), Stop.long(), Stop.short()),
    *(Delay(), *BAD_ROADS, Cut(), Partition()),
    *(FullDisk(), SlowDisk(), ClockStep(), EngineCrash(), EngineStop()),
)

#: By name. None of them remembers anything: one run does not change another.
FAULTS: Mapping[str, Fault] = {fault.kind: fault for fault in _ALL}
