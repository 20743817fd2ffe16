"""Checks of every response that is not OK: a status with details, and a log line."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
import pytest

from tests.contract.served import Served
from tests.e2e.grpc_client import Wire, refusal
from tests.e2e.wait_until import eventually

REQUIRED = ("ts_ms", "level", "service", "method", "event", "grpc_code", "message")


class Case(NamedTuple):
    """A call that is refused, with the expected code and reason."""

    method: str
    code: grpc.StatusCode
    reason: str
    call: Callable[[Wire], object]


def every(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Runs a test with each of these cases."""
    return pytest.mark.parametrize("case", cases, ids=[f"{case.method}-{case.reason}" for case in cases])


def check_refusal(wire: Wire, case: Case) -> None:
    """Checks that the trailing metadata hold a google.rpc.Status with the same code and message, and the reason."""
    refused = refusal(lambda: case.call(wire))
    assert refused.code == case.code
    assert (refused.status.code, refused.status.message) == (case.code.value[0], refused.message)
    assert (refused.info.reason, refused.info.domain) == (case.reason, "holdfast")
    assert refused.message, f"expected {case.method} to return a message for people"


def check_refusal_is_logged(server: Served, wire: Wire, case: Case) -> None:
    """Checks that the log has a line with time, method, code, message and the caller's address."""
    before = len(server.lines("refused"))
    refused = refusal(lambda: case.call(wire))
    wanted = {"method": case.method, "grpc_code": case.code.name, "reason": case.reason, "message": refused.message}
    # The log line of an earlier refusal may be written only now.
    line = eventually(
        lambda: [line for line in server.lines("refused")[before:] if wanted.items() <= line.items()], what=str(wanted)
    )[0]
    assert all(name in line for name in REQUIRED)
    assert line["peer"].startswith("ipv4:127.0.0.1:")
