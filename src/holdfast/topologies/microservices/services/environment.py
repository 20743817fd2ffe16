"""Environment variables of the services: one class per role, one line per variable, validated as a whole.

Every problem is one line, which names the variable, its value and the expected value; secrets are not shown.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.server.auth import service_tokens

#: Roles that call services and must authenticate; `callers` has their rights.
CALLERS = ("gateway", "coordinator", "worker")

_PORT_MAX = 65_535
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
#: Maximum number of characters of a wrong value in a message.
_SHOWN_CHARS_MAX = 200


def _whole(minimum: int, maximum: int, unit: str) -> msgspec.Meta:
    return msgspec.Meta(ge=minimum, le=maximum, description=f"a whole number of {unit} from {minimum} to {maximum}")


#: The default of an optional port: nothing listens.
NO_PORT = -1
Port = Annotated[int, msgspec.Meta(ge=0, le=_PORT_MAX, description="a port, 0 to 65535 (0: any free port)")]
Milliseconds = Annotated[int, _whole(10, _HOUR_MS, "milliseconds")]
SpanMs = Annotated[int, _whole(0, 3_660 * _DAY_MS, "milliseconds")]
Keys = Annotated[int, _whole(1, 1_000_000_000, "keys")]
OutputBytes = Annotated[int, _whole(1, limits.OUTPUT_BYTES_MAX, "bytes")]
Bytes = Annotated[int, _whole(1, 1 << 50, "bytes")]
FileBytes = Annotated[int, _whole(65_536, 1 << 40, "bytes")]
Slots = Annotated[int, _whole(1, limits.SLOTS_MAX, "jobs")]
Address = Annotated[
    str,
    msgspec.Meta(pattern=r"^(\[[0-9A-Fa-f:.%]+\]|[^\s/:@\[\]]+):0*[1-9][0-9]{0,4}$", description="host:port"),
]
Level = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"], msgspec.Meta(description="one of DEBUG, INFO, WARNING, ERROR")
]
WorkerId = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({limits.NAME_PATTERN})?$",
        description=f"at most {limits.NAME_CHARS_MAX} of letters, digits, dot, underscore and hyphen",
    ),
]
Token = Annotated[
    str,
    msgspec.Meta(
        pattern=service_tokens.PATTERN,
        description=service_tokens.EXPECTED,
        extra={"secret": True},
    ),
]
TokenHashes = Annotated[
    str,
    msgspec.Meta(
        pattern=service_tokens.hashes_pattern(CALLERS),
        description="role:hash with commas, roles of gateway, coordinator and worker, hashes as 64 hexadecimal digits",
    ),
]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of every service."""

    log_level: Level = msgspec.field(default="INFO", name="LOG_LEVEL")
    #: Sent to the services that this service calls.
    token: Token = msgspec.field(default="", name=service_tokens.OWN)
    #: Authenticate the callers of this service.
    token_hashes: TokenHashes = msgspec.field(default="", name=service_tokens.KNOWN)


class JournalEnvironment(Environment, frozen=True, kw_only=True):
    """Variables of a service that keeps a journal."""

    #: A snapshot is written after this much new journal, and the journal that it covers is removed.
    snapshot_bytes: FileBytes = msgspec.field(default=limits.OWNER_SNAPSHOT_BYTES_DEFAULT, name="SNAPSHOT_BYTES")


class RetainingEnvironment(JournalEnvironment, frozen=True, kw_only=True):
    """Variables of an owner that removes data of ended jobs after a time."""

    retain_ms: SpanMs = msgspec.field(default=limits.RETAIN_MS_DEFAULT, name="RETAIN_MS")
    #: The same for FAILED jobs.
    retain_failed_ms: SpanMs = msgspec.field(default=limits.RETAIN_FAILED_MS_DEFAULT, name="RETAIN_FAILED_MS")


class JobEnvironment(RetainingEnvironment, frozen=True, kw_only=True):
    """Variables of the job service."""

    port: Port = msgspec.field(default=50_052, name="JOB_PORT")
    dedup_keys_max: Keys = msgspec.field(default=limits.DEDUP_KEYS_DEFAULT, name="MAX_DEDUP_KEYS")
    #: New jobs are refused above this size of held jobs.
    memory_bytes: Bytes = msgspec.field(default=limits.BYTES_HELD_MAX, name="MEMORY_BYTES")


class QueueEnvironment(JournalEnvironment, frozen=True, kw_only=True):
    """Variables of the queue service."""

    port: Port = msgspec.field(default=50_053, name="QUEUE_PORT")


class ResultEnvironment(RetainingEnvironment, frozen=True, kw_only=True):
    """Variables of the result service."""

    port: Port = msgspec.field(default=50_055, name="RESULT_PORT")
    output_bytes_max: OutputBytes = msgspec.field(default=limits.OUTPUT_BYTES_MAX, name="MAX_OUTPUT_BYTES")


class GatewayEnvironment(Environment, frozen=True, kw_only=True):
    """Variables of the gateway."""

    port: Port = msgspec.field(default=50_051, name="GATEWAY_PORT")
    http_port: Port = msgspec.field(default=NO_PORT, name="GATEWAY_HTTP_PORT")
    job_address: Address = msgspec.field(name="JOB_SERVICE_ADDR")
    queue_address: Address = msgspec.field(name="QUEUE_SERVICE_ADDR")
    result_address: Address = msgspec.field(name="RESULT_SERVICE_ADDR")
    #: Deadline of calls to an owner; for an owner with a slow disk a longer deadline is better than retries.
    internal_timeout_ms: Milliseconds = msgspec.field(default=limits.DEADLINE_MS_INTERNAL, name="INTERNAL_TIMEOUT_MS")


class CoordinatorEnvironment(Environment, frozen=True, kw_only=True):
    """Variables of the coordinator."""

    port: Port = msgspec.field(default=50_054, name="COORDINATOR_PORT")
    job_address: Address = msgspec.field(name="JOB_SERVICE_ADDR")
    queue_address: Address = msgspec.field(name="QUEUE_SERVICE_ADDR")
    result_address: Address = msgspec.field(name="RESULT_SERVICE_ADDR")
    #: Deadline of calls to an owner; for an owner with a slow disk a longer deadline is better than retries.
    internal_timeout_ms: Milliseconds = msgspec.field(default=limits.DEADLINE_MS_INTERNAL, name="INTERNAL_TIMEOUT_MS")
    heartbeat_ms: Milliseconds = msgspec.field(default=limits.HEARTBEAT_MS, name="HEARTBEAT_INTERVAL_MS")
    worker_timeout_ms: Milliseconds = msgspec.field(default=limits.WORKER_TIMEOUT_MS, name="WORKER_TIMEOUT_MS")


class WorkerEnvironment(Environment, frozen=True, kw_only=True):
    """Variables of a worker."""

    coordinator_address: Address = msgspec.field(name="COORDINATOR_ADDR")
    #: Empty: the host name.
    worker_id: WorkerId = msgspec.field(default="", name="WORKER_ID")
    slots: Slots = msgspec.field(default=6, name="WORKER_SLOTS")
    heartbeat_ms: Milliseconds = msgspec.field(default=limits.HEARTBEAT_MS, name="HEARTBEAT_INTERVAL_MS")


OwnerEnvironment = JobEnvironment | QueueEnvironment | ResultEnvironment

#: The variables of each role.
ROLES: Mapping[str, type[Environment]] = MappingProxyType(
    {
        "gateway": GatewayEnvironment,
        "job": JobEnvironment,
        "queue": QueueEnvironment,
        "coordinator": CoordinatorEnvironment,
        "result": ResultEnvironment,
        "worker": WorkerEnvironment,
    }
)


def read(role: str, variables: Mapping[str, str]) -> Environment:
    """Reads the variables of a role; `InvalidArgumentError` has a line for every problem."""
    kind = ROLES[role]
    problems: list[str] = []
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        text = variables.get(field.encode_name)
        try:
            if text is not None:
                values[field.name] = _converted(text, field.type)
            elif field.required:
                problems.append(f"{field.encode_name} must be {_wanted(field.type)}, got none: it is required")
        except (msgspec.ValidationError, UnicodeEncodeError):
            problems.append(f"{field.encode_name} must be {_wanted(field.type)}, got {_shown(text, field.type)}")
    if not problems:
        environment = kind(**values)
        problems.extend(_contradictions(environment))
    if problems:
        raise InvalidArgumentError("\n".join(problems), reason="ENVIRONMENT_INVALID")
    return environment


def hashes_of(environment: Environment) -> dict[str, list[str]]:
    """Returns the token hashes that this service accepts, by role; a role has several while tokens are replaced."""
    return service_tokens.hashes_in(environment.token_hashes)


_DIGITS = re.compile(r"[0-9]{1,18}")


def _converted(text: str, kind: Any) -> object:  # noqa: ANN401 - an annotated type
    base = get_args(kind)[0]
    if base is int:
        # The decoder itself would also accept "1e3" and "5.0".
        return msgspec.convert(int(text) if _DIGITS.fullmatch(text) else text, kind)
    value = msgspec.convert(text.upper() if kind is Level else text, kind)
    if kind is Address and int(text.rpartition(":")[2]) > _PORT_MAX:
        raise msgspec.ValidationError(text)
    return value


def _meta(kind: Any) -> msgspec.Meta:  # noqa: ANN401 - an annotated type
    meta: msgspec.Meta = get_args(kind)[1]
    return meta


def _wanted(kind: Any) -> str:  # noqa: ANN401 - an annotated type
    return str(_meta(kind).description)


def _shown(text: str | None, kind: Any) -> str:  # noqa: ANN401 - an annotated type
    if (_meta(kind).extra or {}).get("secret"):
        return f"{len(text or '')} characters that are not shown"
    return repr((text or "")[:_SHOWN_CHARS_MAX])


def _contradictions(environment: Environment) -> Iterator[str]:
    if isinstance(environment, CoordinatorEnvironment) and environment.worker_timeout_ms <= environment.heartbeat_ms:
        yield (
            f"WORKER_TIMEOUT_MS must be more than HEARTBEAT_INTERVAL_MS ({environment.heartbeat_ms}), "
            f"got {environment.worker_timeout_ms}"
        )
