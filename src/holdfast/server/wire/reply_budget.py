"""The memory for replies of one connection that were not sent yet.

Invariant: the reserved bytes are at most `REPLY_BYTES_MAX`, or belong to one reply.
"""

from typing import Final

from holdfast import limits

#: Enough for four of the largest pages, and for thousands of small replies.
REPLY_BYTES_MAX: Final = 4 * limits.BATCH_BYTES_MAX


class ReplyBudget:
    """Counts the bytes that are reserved for replies."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    @property
    def reserved_bytes(self) -> int:
        """The bytes that are reserved now."""
        return self._bytes

    def reserve(self, size: int) -> bool:
        """Reserves this many bytes and returns True, or reserves nothing. One reply is always allowed."""
        if self._bytes and self._bytes + size > REPLY_BYTES_MAX:
            return False
        self._bytes += size
        return True

    def release(self, size: int) -> None:
        """Returns reserved bytes."""
        self._bytes -= size
