"""What every response that is not OK must be: a status with details, and a line of the log."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
import pytest

from tests.contract.served import Served
from tests.e2e.waiting import eventually
from tests.e2e.wire import Wire, refusal

REQUIRED = ("ts_ms", "level", "service", "method", "event", "grpc_code", "message")


class Case(NamedTuple):
    """A call that is refused, and how."""

    method: str
    code: grpc.StatusCode
    reason: str
    call: Callable[[Wire], object]


def every(cases: Sequence[Case]) -> pytest.MarkDecorator:
    """Runs a test with each of these cases."""
    return pytest.mark.parametrize("case", cases, ids=[f"{case.method}-{case.reason}" for case in cases])


def check_refusal(wire: Wire, case: Case) -> None:
    """The trailing metadata hold a google.rpc.Status that repeats code and message and names the reason."""
    refused = refusal(lambda: case.call(wire))
    assert refused.code == case.code
    assert (refused.status.code, refused.status.message) == (case.code.value[0], refused.message)
    assert (refused.info.reason, refused.info.domain) == (case.reason, "holdfast")
    assert refused.message, f"expected {case.method} to say something to people too"


def check_refusal_is_logged(server: Served, wire: Wire, case: Case) -> None:
    """The log has a line with time, method, code, message and the caller's address."""
    before = len(server.lines("refused"))
    refused = refusal(lambda: case.call(wire))
    wanted = {"method": case.method, "grpc_code": case.code.name, "reason": case.reason, "message": refused.message}
    # A line of an earlier refusal may be written only now.
    line = eventually(
        lambda: [line for line in server.lines("refused")[before:] if wanted.items() <= line.items()], what=str(wanted)
    )[0]
    assert all(name in line for name in REQUIRED)
    assert line["peer"].startswith("ipv4:127.0.0.1:")
