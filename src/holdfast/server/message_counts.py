"""Counts of the messages that this process receives and sends, for the lab; enabled by `LAB_COUNT_MESSAGES`.

The counts are written as one line of JSON to standard error when the process exits normally.
"""

import atexit
import json
import os
from functools import cache

VARIABLE = "LAB_COUNT_MESSAGES"
EVENT = "messages_counted"


class MessageCounts:
    """Messages by method."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.sent: dict[str, int] = {}

    def line(self) -> str:
        """Returns the counts so far, as one line of JSON."""
        return json.dumps({"event": EVENT, "pid": os.getpid(), "received": self.received, "sent": self.sent})

    def tell(self) -> None:
        """Writes the line with one system call, because several processes may share standard error."""
        os.write(2, f"{self.line()}\n".encode())


@cache
def message_counts() -> MessageCounts | None:
    """Returns the counts of this process; None, unless counting is enabled."""
    if not os.environ.get(VARIABLE):
        return None
    counts = MessageCounts()
    atexit.register(counts.tell)
    return counts


def counted(counts: dict[str, int], name: str) -> None:
    """Counts one message."""
    counts[name] = counts.get(name, 0) + 1
