"""The microservices topology: three owners of state, a coordinator that calls them, a gateway and workers."""

from typing import Final

import msgspec

from holdfast.core.capabilities import LEDGER, Capability

MICROSERVICES: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.ADMINISTRATION, Capability.FEED, Capability.HISTORY, Capability.NOTES, Capability.SCHEDULES),
        *(Capability.SESSIONS, Capability.TOTALS, Capability.WORKERS),
    ),
    backend="microservices",
)

#: The name under which an owner reports the health of its snapshots to the gateway: NOT_SERVING while they fail.
SNAPSHOTS_HEALTH: Final = "snapshots"
