"""The client's errors for refused gRPC calls."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from holdfast.errors import NotFoundError
from holdfast.topologies.microservices.grpc_errors import error_of


def refused(details: bytes) -> grpc.aio.AioRpcError:
    """Builds a gRPC error with these bytes as its details."""
    return grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(("grpc-status-details-bin", details)),
        "no such job",
        "",
    )


def test_reason_is_taken_from_the_details() -> None:
    """The error has the reason of the response's details."""
    detail = Any()
    detail.Pack(ErrorInfo(reason="JOB_NOT_FOUND"))
    error = error_of(refused(Status(details=[detail]).SerializeToString()))
    assert (type(error), error.message, error.reason) == (NotFoundError, "no such job", "JOB_NOT_FOUND")


@pytest.mark.parametrize("details", [b"", b"\xff", b"\x1a\x10short", Status().SerializeToString()])
def test_error_with_unreadable_details_keeps_its_code_and_message(details: bytes) -> None:
    """If the details are unreadable, for example because of a proxy, the error keeps its code and message."""
    error = error_of(refused(details))
    assert (type(error), error.message, error.reason) == (NotFoundError, "no such job", "NOT_FOUND")
