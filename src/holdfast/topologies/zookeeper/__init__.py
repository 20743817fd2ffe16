"""The zookeeper topology: jobs are nodes of an ensemble, clients post them, and workers bid for them."""

from typing import Final

import msgspec

from holdfast.core.capabilities import LEDGER, Capability

ZOOKEEPER: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.ADMINISTRATION, Capability.AGING, Capability.FEED, Capability.LARGE_PAYLOADS),
        *(Capability.NOTES, Capability.RETENTION_LIMITS),
        *(Capability.SCHEDULES, Capability.TOTALS),
    ),
    backend="zookeeper",
)
