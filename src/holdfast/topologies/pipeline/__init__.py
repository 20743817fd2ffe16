"""The pipeline topology: jobs are rows of one database, and the processes around it only carry tickets."""

from typing import Final

import msgspec

from holdfast.core.capabilities import LEDGER, Capability

#: Order holds within one queue process, and there are several.
PIPELINE: Final = msgspec.structs.replace(
    LEDGER.without(
        *(Capability.FEED, Capability.NOTES, Capability.ORDER, Capability.RETENTION_LIMITS, Capability.TOTALS),
    ),
    backend="pipeline",
)
