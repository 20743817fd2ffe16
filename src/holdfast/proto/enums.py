"""Numbers as the generated code's types want them; the wire itself knows only numbers."""

from typing import cast

from holdfast.proto.taskqueue_public_pb2 import JobStatus


def job_status(state: int) -> JobStatus:
    """A state's number, which is the same in the contract and in the core."""
    return cast("JobStatus", state)
