"""Outer tokens: tokens that are unique over several nodes. Each node counts its own (inner) tokens from 1.

The outer token is the inner token, times the number of nodes, plus the index of the node. So the tokens of one job
still only grow, and a token identifies its node. 0 means no token in both forms.
"""

from collections.abc import Iterable

import msgspec

from holdfast.core.history import Entry
from holdfast.ports import JobView

_NEVER = 1 << 62


class NodeTokens(msgspec.Struct, frozen=True):
    """The conversion of tokens for this number of nodes."""

    nodes: int

    def outer(self, index: int, token: int) -> int:
        """Returns the outer token for a node's own token."""
        return token * self.nodes + index if token else 0

    def node(self, token: int) -> int:
        """Returns the index of the node that issued an outer token."""
        return token % self.nodes

    def inner(self, token: int) -> int:
        """Returns the node's own token; for an outer token that no node can have issued, one that is never valid."""
        return token // self.nodes if token >= self.nodes or not token else _NEVER

    def job(self, index: int, job: JobView) -> JobView:
        """Returns a job of this node with its outer token."""
        return msgspec.structs.replace(job, token=self.outer(index, job.token)) if job.token else job

    def entries(self, index: int, entries: Iterable[Entry]) -> list[Entry]:
        """Returns history entries of this node with their outer tokens."""
        return [
            msgspec.structs.replace(entry, token=self.outer(index, entry.token)) if entry.token else entry
            for entry in entries
        ]
