"""The environment variables of services: names and defaults of the document, and a line for each problem."""

from typing import Any

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.topologies.microservices.services.environment import (
    ROLES,
    CoordinatorEnvironment,
    Environment,
    GatewayEnvironment,
    JobEnvironment,
    QueueEnvironment,
    ResultEnvironment,
    WorkerEnvironment,
    hashes_of,
    read,
)

OWNERS = {"JOB_SERVICE_ADDR": "job:50052", "QUEUE_SERVICE_ADDR": "queue:50053", "RESULT_SERVICE_ADDR": "result:50055"}
#: The required variables of each role.
REQUIRED = {"gateway": OWNERS, "coordinator": OWNERS, "worker": {"COORDINATOR_ADDR": "coordinator:50054"}}
ADDRESSES: dict[str, Any] = {
    "job_address": "job:50052",
    "queue_address": "queue:50053",
    "result_address": "result:50055",
}

DEFAULTS = {
    "gateway": GatewayEnvironment(port=50_051, log_level="INFO", internal_timeout_ms=1_000, **ADDRESSES),
    "job": JobEnvironment(port=50_052, dedup_keys_max=10_000, snapshot_bytes=67_108_864),
    "queue": QueueEnvironment(port=50_053),
    "coordinator": CoordinatorEnvironment(port=50_054, heartbeat_ms=1_000, worker_timeout_ms=4_000, **ADDRESSES),
    "result": ResultEnvironment(port=50_055, output_bytes_max=262_144),
    "worker": WorkerEnvironment(coordinator_address="coordinator:50054", worker_id="", slots=6, heartbeat_ms=1_000),
}
A_HASH = "ab" * 32

WRONG = [
    *((role, name, "") for role, needed in REQUIRED.items() for name in needed),
    *((role, f"{role.upper()}_PORT", text) for role in ROLES if role != "worker" for text in ("65536", "-1", "http")),
    ("job", "JOB_PORT", ""),
    ("job", "JOB_PORT", "5e4"),
    ("job", "JOB_PORT", "50052.0"),
    ("job", "JOB_PORT", " 50052"),
    ("job", "JOB_PORT", "9" * 200),
    ("job", "MAX_DEDUP_KEYS", "0"),
    ("job", "MAX_DEDUP_KEYS", "many"),
    ("coordinator", "HEARTBEAT_INTERVAL_MS", "1s"),
    ("coordinator", "HEARTBEAT_INTERVAL_MS", "9"),
    ("coordinator", "WORKER_TIMEOUT_MS", "4000ms"),
    ("coordinator", "WORKER_TIMEOUT_MS", "3600001"),
    ("coordinator", "INTERNAL_TIMEOUT_MS", "9"),
    ("gateway", "INTERNAL_TIMEOUT_MS", "1s"),
    ("coordinator", "JOB_SERVICE_ADDR", "job"),
    ("coordinator", "QUEUE_SERVICE_ADDR", "queue:0"),
    ("coordinator", "RESULT_SERVICE_ADDR", "result:65536"),
    ("gateway", "JOB_SERVICE_ADDR", "http://job:50052"),
    ("gateway", "QUEUE_SERVICE_ADDR", "queue:50053/path"),
    ("gateway", "RESULT_SERVICE_ADDR", "result:port"),
    ("queue", "SNAPSHOT_BYTES", "65535"),
    ("result", "MAX_OUTPUT_BYTES", "256KiB"),
    ("result", "MAX_OUTPUT_BYTES", "262145"),
    ("worker", "COORDINATOR_ADDR", "50054"),
    ("worker", "WORKER_ID", "not a name"),
    ("worker", "WORKER_SLOTS", "0"),
    ("worker", "WORKER_SLOTS", "six"),
    ("worker", "HEARTBEAT_INTERVAL_MS", "0"),
    ("queue", "LOG_LEVEL", "loud"),
    ("queue", "SERVICE_TOKEN_HASHES", "gateway"),
    ("queue", "SERVICE_TOKEN_HASHES", f"client:{A_HASH}"),
    ("queue", "SERVICE_TOKEN_HASHES", f"gateway:{A_HASH},"),
]


def refused(role: str, variables: dict[str, str]) -> list[str]:
    """Returns the problems of an environment that is refused."""
    with pytest.raises(InvalidArgumentError) as caught:
        read(role, variables)
    return caught.value.message.splitlines()


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_the_documents(role: str) -> None:
    """With only the required variables, a role has the documented ports, sizes and times."""
    assert read(role, REQUIRED.get(role, {})) == DEFAULTS[role]


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, needed in REQUIRED.items() for name in needed])
def test_missing_variable_is_named(role: str, name: str) -> None:
    """Each missing required variable is reported in a line of its own."""
    variables = {other: value for other, value in REQUIRED[role].items() if other != name}
    assert refused(role, variables) == [f"{name} must be host:port, got none: it is required"]


@pytest.mark.parametrize(("role", "name", "text"), WRONG)
def test_wrong_variable_is_named_with_its_value(role: str, name: str, text: str) -> None:
    """One line names the variable, the expected value and the actual one."""
    (line,) = refused(role, {**REQUIRED.get(role, {}), name: text})
    assert line.startswith(f"{name} must be ")
    assert line.endswith(f", got {text!r}")


def test_all_problems_are_told_at_once() -> None:
    """All problems of an environment are reported at once."""
    lines = refused("coordinator", {"COORDINATOR_PORT": "x", "JOB_SERVICE_ADDR": "job:1"})
    assert [line.split()[0] for line in lines] == ["COORDINATOR_PORT", "QUEUE_SERVICE_ADDR", "RESULT_SERVICE_ADDR"]


def test_timeout_has_to_be_longer_than_the_interval() -> None:
    """A worker timeout that is not longer than the heartbeat interval is refused."""
    (line,) = refused("coordinator", {**OWNERS, "HEARTBEAT_INTERVAL_MS": "500", "WORKER_TIMEOUT_MS": "500"})
    assert line == "WORKER_TIMEOUT_MS must be more than HEARTBEAT_INTERVAL_MS (500), got 500"


def test_wrong_token_is_not_shown() -> None:
    """The message about an invalid token does not contain the token."""
    (line,) = refused("queue", {"SERVICE_TOKEN": "a secret"})
    assert line == ("SERVICE_TOKEN must be 32 to 256 visible ASCII characters, got 8 characters that are not shown")


def test_level_is_read_in_any_case() -> None:
    """A log level is accepted in lower and upper case."""
    assert read("queue", {"LOG_LEVEL": "warning"}).log_level == "WARNING"


def test_hashes_are_kept_by_role() -> None:
    """A role may have two token hashes, so that a token can be replaced."""
    other = "cd" * 32
    environment = Environment(token_hashes=f"gateway:{A_HASH},worker:{other},gateway:{other}")
    assert hashes_of(environment) == {"gateway": [A_HASH, other], "worker": [other]}
    assert hashes_of(Environment()) == {}
