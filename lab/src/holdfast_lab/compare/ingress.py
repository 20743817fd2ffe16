"""The choice of a node: the locked ingress policy, over plain stubs.

One address gets all requests. With several, submits without a request id go to each in turn, submits with one to the
owner of that id, requests about a job to the owner of the job's id, and ListJobs to each in turn.
"""

import itertools
from collections.abc import Sequence

from holdfast.core.owner import owner_index


class Router:
    """Chooses among nodes in their fixed order; clients begin their turns at different nodes."""

    def __init__(self, nodes: int, first: int = 0) -> None:
        self._nodes = nodes
        self._submits = itertools.count(first)
        self._lists = itertools.count(first)

    def for_submit(self, request_id: str) -> int:
        """The owner of the request id if there is one, else the next node."""
        if request_id:
            return owner_index(request_id, self._nodes)
        return next(self._submits) % self._nodes

    def for_job(self, job_id: str) -> int:
        """The owner of the job."""
        return owner_index(job_id, self._nodes)

    def for_list(self) -> int:
        """The next node: each lists its own jobs."""
        return next(self._lists) % self._nodes


def addresses(ready: str) -> Sequence[str]:
    """The nodes of a ready line, in their order."""
    return tuple(part.strip() for part in ready.split(",") if part.strip())
