"""All kinds of faults."""

from collections.abc import Mapping

from holdfast.lab.torture.faults.bad_roads import BAD_ROADS, Cut, Delay, Resets
from holdfast.lab.torture.faults.crowds import Descriptors
from holdfast.lab.torture.faults.killing import Kill, KillMany, KillStarting
from holdfast.lab.torture.faults.partitions import Partition
from holdfast.lab.torture.faults.restarts import ClockRestart
from holdfast.lab.torture.faults.stopping import EngineCrash, EngineStop, Stop
from holdfast.lab.torture.faults.surroundings import ClockStep, FullDisk, SlowDisk
from holdfast.lab.torture.ports import Fault

_ALL: tuple[Fault, ...] = (
    *(Kill(), KillStarting(), KillMany(), Stop.long(), Stop.short()),
    *(Delay(), *BAD_ROADS, Cut(), Resets(), Partition()),
    *(FullDisk.short(), FullDisk.lasting(), SlowDisk(), ClockStep(), ClockRestart(), Descriptors()),
    *(EngineCrash(), EngineStop()),
)

#: Faults that come alone: a server that starts twice in a row under a clock that is far ahead believes it, as promised.
ALONE = frozenset({ClockStep.kind, ClockRestart.kind})

#: By name. None of them remembers anything: one run does not change another.
FAULTS: Mapping[str, Fault] = {fault.kind: fault for fault in _ALL}
