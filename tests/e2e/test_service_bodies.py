"""Bodies of calls to the internal ports of the microservices topology: received with a service token only."""

from hashlib import sha256

import pytest

from holdfast_lab.faults.http2 import Http2Attacker
from holdfast_lab.measure.process_tree import peak_bytes, resident_bytes
from tests.e2e.fleet import Fleet, Program

MIB = 1 << 20
BODY_BYTES = 4 * MIB
#: After this time without a byte sent, the service accepts no more.
QUIET_S = 1.0
#: Limit of the memory that a service may add for bodies of 400 MiB in total.
ADDED_MAX = 64 * MIB
TOKENS = {role: f"{role}-{'t' * 32}" for role in ("gateway", "worker")}
HASHES = ",".join(f"{role}:{sha256(token.encode()).hexdigest()}" for role, token in TOKENS.items())
#: An address where nothing listens: the coordinator service starts without the owners.
NOWHERE = "127.0.0.1:1"
PEERS = {f"{role}_SERVICE_ADDR": NOWHERE for role in ("JOB", "QUEUE", "RESULT")}
#: By role: a method, and the token of a caller that may call it.
METHODS = {
    "job": ("/taskqueue.internal.v1.JobInternalService/CreateJob", TOKENS["gateway"]),
    "coordinator": ("/taskqueue.internal.v1.CoordinatorInternalService/ReportWorkOutcome", TOKENS["worker"]),
}


@pytest.fixture
def fleet(loaded_fleet: Fleet) -> Fleet:
    """A fleet whose processes are forked from the preloaded program."""
    return loaded_fleet


def guarded(fleet: Fleet, role: str) -> Program:
    """A service that knows its callers."""
    peers = PEERS if role == "coordinator" else {}
    return fleet.start("service", role, SERVICE_TOKEN_HASHES=HASHES, **{f"{role.upper()}_PORT": "0"}, **peers)


def attacker_of(program: Program) -> Http2Attacker:
    """A connection to a service."""
    host, _, port = program.ready()["grpc"].rpartition(":")
    return Http2Attacker(host, int(port))


@pytest.mark.parametrize("role", METHODS)
@pytest.mark.parametrize("token", ["", "stranger-" + "t" * 32], ids=["none", "unknown"])
def test_bodies_of_callers_without_a_service_token_are_not_received(fleet: Fleet, role: str, token: str) -> None:
    """A service ends a hundred calls after their headers, and receives at most the windows of their bodies."""
    program, (method, _) = guarded(fleet, role), METHODS[role]
    attacker = attacker_of(program)
    pid = int(program.ready()["pid"])
    before = resident_bytes(pid)
    try:
        for _ in range(100):
            attacker.open(method, BODY_BYTES, token)
            attacker.push(0.0)
        attacker.push(QUIET_S)
        assert attacker.refused == 100
        assert peak_bytes(pid) - before < ADDED_MAX
    finally:
        attacker.close()


@pytest.mark.parametrize("role", METHODS)
def test_bodies_of_callers_with_a_service_token_are_received(fleet: Fleet, role: str) -> None:
    """With a service token, the same calls are read to their last byte but one, which never comes."""
    program, (method, token) = guarded(fleet, role), METHODS[role]
    attacker = attacker_of(program)
    try:
        for _ in range(4):
            attacker.open(method, BODY_BYTES, token)
        attacker.push(QUIET_S)
        assert attacker.refused == 0
        assert attacker.sent_bytes >= 4 * (BODY_BYTES - 1)
    finally:
        attacker.close()
