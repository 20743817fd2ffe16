"""The caller matrix, and authentication by token hashes."""

import pytest

from holdfast.errors import PermissionDeniedError, UnauthenticatedError
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.server.auth.service_tokens import hash_of
from holdfast.topologies.microservices.services.callers import RIGHTS, CallerInterceptor, check_right, credential
from holdfast.topologies.microservices.services.environment import CALLERS

GATEWAY, OTHER = "g" * 43, "o" * 43
METHODS = {
    f"/{service.full_name}/{method.name}"
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@pytest.fixture
def callers() -> CallerInterceptor:
    return CallerInterceptor({"gateway": [hash_of(GATEWAY)], "worker": [hash_of(OTHER)]})


def test_every_method_is_somebodys_right_and_no_right_is_without_a_method() -> None:
    """The caller matrix names exactly the methods of the contract."""
    assert set().union(*RIGHTS.values()) == METHODS


def test_callers_are_those_with_rights() -> None:
    """The roles with a row in the caller matrix are exactly the roles with a token."""
    assert set(RIGHTS) == set(CALLERS)


def test_coordinator_has_two_rights_more_than_the_document_gave_it() -> None:
    """The coordinator has exactly the two rights that rescue and sweep need beyond those of the document."""
    document = {"DequeueJob", "RemoveJobIfPresent", "TransitionJobStatus", "GetJobRecord", "StoreResult"}
    names = {right.rpartition("/")[2] for right in RIGHTS["coordinator"]}
    assert names - document == {"EnqueueJob", "ListJobRecords"}
    assert document <= names


@pytest.mark.parametrize("method", ["/taskqueue.internal.v1.JobInternalService/DropJobs", "", "/", "CreateJob"])
def test_method_outside_the_matrix_is_refused_to_every_role(method: str) -> None:
    """A method that is not in the matrix is refused to every role, known or not."""
    for role in (*RIGHTS, "unknown"):
        with pytest.raises(PermissionDeniedError):
            check_right(role, method)


def test_token_tells_the_role(callers: CallerInterceptor) -> None:
    """A token identifies the role of its caller."""
    assert callers.role_of(credential(GATEWAY)) == "gateway"
    assert callers.role_of((("user-agent", "x"), *credential(OTHER))) == "worker"
    assert callers.role_of((("authorization", f"bearer {OTHER}"),)) == "worker"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (None, "TOKEN_MISSING"),
        ((), "TOKEN_MISSING"),
        (credential(""), "TOKEN_MISSING"),
        ((("authorization", GATEWAY),), "TOKEN_MISSING"),
        ((("authorization", f"Basic {GATEWAY}"),), "TOKEN_MISSING"),
        ((("authorization", f"Bearer {GATEWAY}".encode()),), "TOKEN_MISSING"),
        ((*credential(GATEWAY), *credential(OTHER)), "TOKEN_MISSING"),
        ((("authorization", "Bearer "),), "TOKEN_UNKNOWN"),
        (credential(GATEWAY + "x"), "TOKEN_UNKNOWN"),
        (credential(GATEWAY[:-1]), "TOKEN_UNKNOWN"),
        (credential(GATEWAY.upper()), "TOKEN_UNKNOWN"),
        (credential(hash_of(GATEWAY)), "TOKEN_UNKNOWN"),
    ],
)
def test_token_that_is_none_is_refused(
    callers: CallerInterceptor, metadata: tuple[tuple[str, str], ...], reason: str
) -> None:
    """A missing, partial, duplicate or hashed token is refused, and the message does not contain it."""
    with pytest.raises(UnauthenticatedError) as caught:
        callers.role_of(metadata)
    assert caught.value.reason == reason
    assert GATEWAY not in caught.value.message
