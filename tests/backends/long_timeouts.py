"""Longer deadlines for clients and workers, so that a pause of the machine fails no call.

Deadlines and their effects are tested elsewhere.
"""

import pytest

from holdfast.testing.conformance.workplace import PATIENCE_S

#: The deadlines of the test's own process that could pass although the other side will still reply.
_DEADLINES = {
    "holdfast.client.remote": ("SUBMIT_S", "_CANCEL_S", "_STATUS_S", "_RESULT_S", "_LIST_S"),
    "holdfast.client.schedules": ("_CHANGE_S", "_LOOK_S"),
    "holdfast.client.endpoints": ("CONNECT_S",),
    "holdfast.client.wire_line": ("CONNECT_S",),
    "holdfast.client.wire_transport": ("CONNECT_S",),
    "holdfast.client.wire_redirect": ("_WAIT_S",),
    "holdfast.client.wire_work": ("_FAREWELL_S",),
    "tests.grpc_v1.remote": ("_SUBMIT_S", "_CANCEL_S", "_STATUS_S", "_RESULT_S", "_LIST_S"),
    "tests.grpc_v1.schedules": ("_CHANGE_S", "_LOOK_S"),
    "tests.grpc_v1.work_session": ("_FAREWELL_S",),
    "holdfast.client.routed_work": ("_WELCOME_S", "_PATIENCE_S"),
    "holdfast.topologies.microservices.backend.coordinator_client": ("_HEARTBEAT_S", "_FETCH_S", "_REPORT_S"),
    "holdfast.topologies.pipeline.backend.http_client": ("_CONNECT_S",),
    "holdfast.topologies.pipeline.backend.coordinator_client": ("_DEADLINE_S",),
    "holdfast.topologies.pipeline.postgres.connections": ("_ACQUIRE_S",),
    "holdfast.topologies.zookeeper.backend.connection": ("_CALL_S",),
    "holdfast.topologies.zookeeper.backend.worker_session": ("_CLOSE_S",),
}


def wait_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the deadlines for the duration of a test."""
    for module, names in _DEADLINES.items():
        for name in names:
            monkeypatch.setattr(f"{module}.{name}", PATIENCE_S)
