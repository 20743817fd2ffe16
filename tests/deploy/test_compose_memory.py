"""The comparison's stacks in containers: the same services, which store nothing."""

import pytest

from holdfast.proto import taskqueue_public_pb2 as public
from tests.deploy.stack import Stack
from tests.e2e.grpc_client import Wire

# The first test also waits for the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_comparison_writes_no_file(microservices_memory: Stack) -> None:
    """Jobs run and end, and no owner writes a file to its volume."""
    wire = Wire(microservices_memory.engine.target(50051))
    try:
        job_id = wire.new(ms=1)
        assert wire.wait_for(job_id).status == public.DONE
    finally:
        wire.close()
    asked = "import pathlib; print(*pathlib.Path('/var/lib/holdfast').iterdir())"
    for service in ("job", "queue", "result"):
        assert microservices_memory.run_in(service, "python", "-c", asked).split() == []
