"""What a refusal becomes on the side of the client."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from holdfast.client.refusals import error_of
from holdfast.errors import NotFoundError


def refused(details: bytes) -> grpc.aio.AioRpcError:
    """An answer with these bytes for its details."""
    return grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(("grpc-status-details-bin", details)),
        "no such job",
        "",
    )


def test_reason_is_taken_from_the_details() -> None:
    """It is what programs decide by."""
    detail = Any()
    detail.Pack(ErrorInfo(reason="JOB_NOT_FOUND"))
    error = error_of(refused(Status(details=[detail]).SerializeToString()))
    assert (type(error), error.message, error.reason) == (NotFoundError, "no such job", "JOB_NOT_FOUND")


@pytest.mark.parametrize("details", [b"", b"\xff", b"\x1a\x10short", Status().SerializeToString()])
def test_unreadable_details_leave_the_refusal_what_it_is(details: bytes) -> None:
    """Whoever stands between client and server may have put anything there."""
    error = error_of(refused(details))
    assert (type(error), error.message, error.reason) == (NotFoundError, "no such job", "NOT_FOUND")
