"""All kinds of faults."""

from collections.abc import Mapping

from holdfast_lab.torture.faults.descriptor_exhaustion import Descriptors
from holdfast_lab.torture.faults.kills import KillFault, KillMany, KillStarting
from holdfast_lab.torture.faults.machine_faults import ClockStep, FullDisk, SlowDisk
from holdfast_lab.torture.faults.network_faults import BAD_ROADS, Cut, Delay, Partition, Resets
from holdfast_lab.torture.faults.pauses import EngineAway, EngineCrash, EngineStop, Stop
from holdfast_lab.torture.faults.restarts import ClockRestart
from holdfast_lab.torture.faults.targets import TargetedFault
from holdfast_lab.torture.ports import Fault

_ALL: tuple[Fault, ...] = (
    *(KillFault(), KillStarting(), KillMany(), Stop.long(), Stop.short()),
    *(Delay(), *BAD_ROADS, Cut(), Resets(), Partition()),
    *(FullDisk.short(), FullDisk.lasting(), SlowDisk(), ClockStep(), ClockRestart(), Descriptors()),
    *(EngineCrash(), EngineStop(), EngineAway()),
)

#: Faults that are fired alone: a server that starts twice in a row under a clock far ahead accepts it, as documented;
#: and a server that another fault stops cannot show that it recovers from having no descriptors.
ALONE = frozenset({ClockStep.kind, ClockRestart.kind, Descriptors.kind})

#: By name. Faults keep no state, so runs do not affect each other.
FAULTS: Mapping[str, Fault] = {fault.kind: fault for fault in _ALL}


def fault_of(name: str) -> Fault:
    """The fault of a kind, aimed if the name has a second word: `kill server`, `engine-crash zookeeper-1`."""
    kind, _, aim = name.partition(" ")
    fault = FAULTS[kind]
    if not aim:
        return fault
    assert isinstance(fault, TargetedFault), f"{kind} cannot be aimed"
    return fault.at(aim)
