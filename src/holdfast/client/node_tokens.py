"""Tokens of several nodes, made unambiguous: each node counts its own, so that a number alone names several leases.

The token of node `index` out of `nodes` is the node's own, times the number of nodes, plus the index. So tokens of one
job still only grow, and whoever has a token knows whom to tell. 0 stays what it is: no token.
"""

from collections.abc import Iterable

import msgspec

from holdfast.core.history import Entry
from holdfast.ports import JobView

_NEVER = 1 << 62


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of so many nodes."""

    nodes: int

    def outer(self, index: int, token: int) -> int:
        """A node's own token, as everybody else knows it."""
        return token * self.nodes + index if token else 0

    def node(self, token: int) -> int:
        """Whose token it is."""
        return token % self.nodes

    def inner(self, token: int) -> int:
        """The token as its node knows it; one that no node can have given stays one."""
        return token // self.nodes if token >= self.nodes or not token else _NEVER

    def job(self, index: int, job: JobView) -> JobView:
        """A job of this node."""
        return msgspec.structs.replace(job, token=self.outer(index, job.token)) if job.token else job

    def entries(self, index: int, entries: Iterable[Entry]) -> list[Entry]:
        """What happened to a job of this node."""
        return [
            msgspec.structs.replace(entry, token=self.outer(index, entry.token)) if entry.token else entry
            for entry in entries
        ]
