"""How much of the processor feeds may take from the loop that decides about jobs."""

import asyncio

#: Of every hundred milliseconds, three: whatever is told, and to however many, jobs are hardly slower for it.
_SHARE = 0.03


class FeedBudget:
    """Lets work go on at a share of the processor, all of it together; what is too much comes later."""

    def __init__(self, share: float = _SHARE) -> None:
        self._factor = 1 / share
        self._free_at = 0.0

    async def rest(self, spent_s: float) -> None:
        """Waits until the share allows what was just spent."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + spent_s * self._factor
        await asyncio.sleep(self._free_at - now)
