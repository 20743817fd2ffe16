"""Clients and workers for which nothing is late: what stands still here is the machine, and it is waited for.

Deadlines, and what comes after them, have tests of their own.
"""

import pytest

from holdfast.testing.conformance.workplace import PATIENCE_S

#: Whatever the test's own process gives up waiting for while the other side may still answer.
_DEADLINES = {
    "holdfast.client.remote": ("_SUBMIT_S", "_CANCEL_S", "_STATUS_S", "_RESULT_S", "_LIST_S"),
    "holdfast.client.schedules": ("_CHANGE_S", "_LOOK_S"),
    "holdfast.client.work_session": ("_FAREWELL_S",),
    "holdfast.client.routed_work": ("_WELCOME_S", "_PATIENCE_S"),
    "holdfast.topologies.microservices.backend.coordinator_client": ("_HEARTBEAT_S", "_FETCH_S", "_REPORT_S"),
    "holdfast.topologies.pipeline.backend.http_client": ("_CONNECT_S",),
    "holdfast.topologies.pipeline.backend.coordinator_client": ("_DEADLINE_S",),
    "holdfast.topologies.pipeline.postgres.connections": ("_ACQUIRE_S",),
    "holdfast.topologies.zookeeper.backend.connection": ("_CALL_S",),
    "holdfast.topologies.zookeeper.backend.worker_session": ("_CLOSE_S",),
}


def wait_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the length of a test."""
    for module, names in _DEADLINES.items():
        for name in names:
            monkeypatch.setattr(f"{module}.{name}", PATIENCE_S)
