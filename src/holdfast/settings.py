"""The table of settings: each with its type, limits, default and help text.

`--help`, docs/reference.md and error messages are generated from this table; `settings_sources` reads the values.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.topologies import table as topologies

if TYPE_CHECKING:
    _Topology = str
else:
    _Topology = Literal[topologies.NAMES]

MEMORY = "memory://"
TOKENS_NAME = "tokens.json"
SERVER = "holdfast://"
#: A server over TLS.
SECURE_SERVER = "holdfasts://"
DEFAULT_CONNECT = "127.0.0.1:50051"
#: A ZooKeeper ensemble: the hosts of its servers and the path below which the jobs are.
ENSEMBLE = "zk://"
ENSEMBLE_PATTERN = r"[^\s/,@?#]+(,[^\s/,@?#]+)*(/[\w./-]*)?(\?auth_file=[^\s?#&]+)?"

_DAY_MS = 86_400_000
_MIB = 1_048_576


def _whole(minimum: int, maximum: int, unit: str) -> msgspec.Meta:
    text = f"a whole number of {unit} from {minimum} to {maximum}"
    return msgspec.Meta(ge=minimum, le=maximum, description=text)


def _purpose(text: str) -> msgspec.Meta:
    return msgspec.Meta(title=text)


#: Marks a setting whose value is never shown.
SECRET = msgspec.Meta(extra={"secret": True})
MASK = "********"


Data = Annotated[
    str,
    msgspec.Meta(pattern=r"^(memory://|(?!\w+://)[^\0]+)$", description="a directory, or memory://"),
]
Host = Annotated[str, msgspec.Meta(min_length=1, description="an address to listen on")]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535, description="a port number from 0 to 65535 (0: any free port)")]
MetricsPort = Annotated[int, msgspec.Meta(ge=0, le=65_535, description="a port number from 1 to 65535, or 0 for none")]
Connect = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description=(
            "host:port, holdfast://host:port, a comma-separated list of these, a data directory, or zk://host:port/path"
        ),
    ),
]
Token = Annotated[str, msgspec.Meta(pattern=r"^[!-~]*$", description="a token as `holdfast token create` printed it")]
FilePath = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*$", description="a file path")]
HostNames = Annotated[
    str, msgspec.Meta(pattern=r"^[^\s/@]*$", description="comma-separated host names without ports, or *")
]
PerSecond = Annotated[int, _whole(0, 1_000_000_000, "requests per second")]
Queues = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({limits.NAME_PATTERN}(,{limits.NAME_PATTERN})*)?$", description="comma-separated queue names"
    ),
]
AppPath = Annotated[
    str,
    msgspec.Meta(pattern=r"^([\w.]+:[\w.]+)?$", description="module:attribute, such as shop:app for app in shop.py"),
]
Isolation = Annotated[Literal["", "thread", "process"], msgspec.Meta(description="one of thread, process")]
Megabytes = Annotated[int, _whole(0, 1 << 30, "MiB")]
Slots = Annotated[int, _whole(1, limits.SLOTS_MAX, "jobs")]
LeaseMs = Annotated[int, _whole(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX, "milliseconds")]
PeriodMs = Annotated[int, _whole(10, 3_600_000, "milliseconds")]
SpanMs = Annotated[int, _whole(0, 3_660 * _DAY_MS, "milliseconds")]
Count = Annotated[int, _whole(0, 1_000_000_000, "entries")]
Size = Annotated[int, _whole(0, 1 << 50, "bytes")]
FileSize = Annotated[int, _whole(65_536, 1 << 40, "bytes")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    msgspec.Meta(description="one of debug, info, warning, error"),
]
LogFormat = Annotated[Literal["auto", "json", "text"], msgspec.Meta(description="one of auto, json, text")]
TopologyName = Annotated[_Topology, msgspec.Meta(description=f"one of {', '.join(topologies.NAMES)}")]
DatabaseUrl = Annotated[
    str,
    msgspec.Meta(pattern=r"^(postgres(ql)?://\S*)?$", description="a URL such as postgresql://user@host/database"),
]
EnsembleHosts = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^((zk://)?{ENSEMBLE_PATTERN})?$",
        description="comma-separated hosts, optionally a path and ?auth_file=FILE, such as zk1:2181,zk2:2181/holdfast",
    ),
]
Connections = Annotated[int, _whole(4, 1_000_000, "connections")]
Retries = Annotated[int, _whole(0, limits.ATTEMPTS_MAX - 1, "retries")]
RetryMs = Annotated[int, _whole(0, limits.BACKOFF_MS_MAX, "milliseconds")]
Nodes = Annotated[int, _whole(1, limits.NODES_MAX, "nodes")]
Switch = Annotated[bool, msgspec.Meta(description="true or false")]
WorkerId = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({limits.NAME_PATTERN})?$",
        description=f"at most {limits.NAME_CHARS_MAX} letters, digits, dots, underscores and hyphens",
    ),
]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server."""

    data: Annotated[Data, _purpose("Data directory; memory:// keeps jobs in memory until the server stops")] = (
        "./holdfast-data"
    )
    host: Annotated[Host, _purpose("Address to listen on")] = "127.0.0.1"
    port: Annotated[Port, _purpose("gRPC port to listen on; 0: any free port")] = 50_051
    http_port: Annotated[Port, _purpose("Port for HTTP and the dashboard; 0: any free port")] = 8_080
    no_http: Annotated[Switch, _purpose("Serve no HTTP and no dashboard, only gRPC and Holdfast's own clients")] = False
    metrics_port: Annotated[MetricsPort, _purpose("Port for /metrics, /livez and /readyz; 0: none")] = 0
    slots: Annotated[Slots, _purpose("Number of jobs that the worker of holdfast up runs at a time")] = 8
    lease_ms: Annotated[
        LeaseMs, _purpose("Lease length: a worker that sends no heartbeat for this long loses the job")
    ] = limits.LEASE_MS_DEFAULT
    heartbeat_ms: Annotated[PeriodMs, _purpose("Interval between two heartbeats of a worker")] = limits.HEARTBEAT_MS
    worker_timeout_ms: Annotated[
        PeriodMs, _purpose("Workers without a heartbeat for this long are considered lost and get no new jobs")
    ] = limits.WORKER_TIMEOUT_MS
    reconnect_grace_ms: Annotated[
        SpanMs,
        _purpose("A worker whose connection drops keeps its jobs if it reconnects within this time; 0: it loses them"),
    ] = limits.RECONNECT_GRACE_MS
    aging_ms: Annotated[SpanMs, _purpose("Waiting this long raises the priority of a job by one; 0: never")] = (
        limits.AGING_MS_DEFAULT
    )
    retain_ms: Annotated[SpanMs, _purpose("DONE and CANCELED jobs are removed this long after they ended")] = (
        limits.RETAIN_MS_DEFAULT
    )
    retain_failed_ms: Annotated[
        SpanMs, _purpose("FAILED jobs are removed this long after they ended; by default at least retain_ms")
    ] = limits.RETAIN_FAILED_MS_DEFAULT
    retain_jobs: Annotated[Count, _purpose("Finished jobs are evicted, oldest first, above this number")] = (
        limits.RETAIN_JOBS_DEFAULT
    )
    retain_bytes: Annotated[Size, _purpose("Finished jobs are evicted, oldest first, above this size")] = (
        limits.RETAIN_BYTES_DEFAULT
    )
    memory_bytes: Annotated[
        Size,
        _purpose("Submits are refused above this size of held jobs; 0: half of the memory of the machine or container"),
    ] = 0
    history_ms: Annotated[
        SpanMs, _purpose("Journal segments older than this are removed once snapshots cover them")
    ] = 7 * _DAY_MS
    history_bytes: Annotated[
        Size, _purpose("Above this journal size, the oldest segments that snapshots cover are removed")
    ] = limits.HISTORY_BYTES_DEFAULT
    segment_bytes: Annotated[FileSize, _purpose("Size at which the journal starts a new segment file")] = 64 * _MIB
    snapshot_bytes: Annotated[FileSize, _purpose("A snapshot is written after this much new journal")] = 256 * _MIB
    log_level: Annotated[LogLevel, _purpose("Lowest level to log: debug, info, warning or error")] = "info"
    log_format: Annotated[
        LogFormat, _purpose("Log format: json, text, or auto (text on a terminal, otherwise json)")
    ] = "auto"
    dedup_keys_max: Annotated[
        Count, _purpose("Number of request ids to remember; 0: each as long as its job, in memory the newest 10000")
    ] = 0
    tokens: Annotated[FilePath, _purpose("Token file; if empty, tokens.json in the data directory")] = ""
    tls_cert: Annotated[FilePath, _purpose("Server certificate with its intermediate certificates, as PEM")] = ""
    tls_key: Annotated[FilePath, _purpose("Private key of the server certificate, as PEM")] = ""
    tls_client_ca: Annotated[
        FilePath, _purpose("CA certificates, as PEM; one of them must have signed each client's certificate")
    ] = ""
    allowed_hosts: Annotated[HostNames, _purpose("Additional host names by which browsers may reach HTTP")] = ""
    rate_limit: Annotated[PerSecond, _purpose("Maximum requests per second of one caller; 0: no limit")] = (
        limits.REQUESTS_PER_S_DEFAULT
    )
    work_rate_limit: Annotated[PerSecond, _purpose("Maximum worker calls per second of one caller; 0: no limit")] = (
        limits.WORK_PER_S_DEFAULT
    )
    grpc_connections: Annotated[
        Connections, _purpose("Maximum number of gRPC connections, and of those of Holdfast's own clients")
    ] = limits.GRPC_CONNECTIONS_MAX
    insecure: Annotated[Switch, _purpose("Listen on a non-loopback address without TLS and tokens")] = False
    reflection: Annotated[Switch, _purpose("Enable gRPC reflection, for clients such as grpcurl")] = False
    worker_id: Annotated[WorkerId, _purpose("Name of the worker of holdfast up")] = ""
    app: Annotated[
        AppPath, _purpose("App whose jobs the worker of holdfast up runs, in addition to the built-in types")
    ] = ""

    topology: Annotated[
        TopologyName, _purpose(f"Topology to run: {', '.join(topologies.NAMES[:-1])} or {topologies.NAMES[-1]}")
    ] = "embedded"
    nodes: Annotated[Nodes, _purpose("Number of nodes of the monolith topology")] = 6
    database: Annotated[DatabaseUrl, _purpose("PostgreSQL of the pipeline topology; if empty, it starts its own")] = ""
    ensemble: Annotated[EnsembleHosts, _purpose("ZooKeeper of the zookeeper topology; if empty, it starts its own")] = (
        ""
    )
    retries: Annotated[Retries, _purpose("Pipeline: number of retries of a job from POST /api/jobs")] = 3
    retry_ms: Annotated[
        RetryMs, _purpose("Pipeline: back-off of these jobs; retry n waits n squared times this long")
    ] = 10_000

    @property
    def is_in_memory(self) -> bool:
        return self.data == MEMORY

    @property
    def wire_port(self) -> int:
        """The port of the wire: that of HTTP; without HTTP, any free one unless a port was set."""
        is_unset = self.http_port == FIELDS["http_port"].default
        return 0 if self.no_http and is_unset else self.http_port

    @property
    def failed_retention_ms(self) -> int:
        """Retention of FAILED jobs: at least `retain_ms`, unless `retain_failed_ms` was set."""
        is_default = self.retain_failed_ms == limits.RETAIN_FAILED_MS_DEFAULT
        return max(self.retain_ms, self.retain_failed_ms) if is_default else self.retain_failed_ms

    @property
    def tokens_file(self) -> str:
        """The path of the token file; empty if jobs are in memory and no file is set."""
        return self.tokens or ("" if self.is_in_memory else f"{self.data.rstrip('/') or '/'}/{TOKENS_NAME}")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a worker."""

    connect: Annotated[Connect, _purpose("Server, data directory or ZooKeeper ensemble to connect to")] = (
        DEFAULT_CONNECT
    )
    token: Annotated[Token, _purpose("Token for servers that require one"), SECRET] = ""
    queues: Annotated[Queues, _purpose("Queues to serve; if empty, all")] = ""
    slots: Annotated[Slots, _purpose("Number of jobs to run at a time")] = 8
    worker_id: Annotated[WorkerId, _purpose("Name of this worker; if empty, made from the host name")] = ""
    drain_ms: Annotated[
        SpanMs, _purpose("Time that a stopping worker waits for running jobs before it hands them back")
    ] = 30_000
    app: Annotated[AppPath, _purpose("App whose jobs to run; if empty, only the built-in types")] = ""
    isolation: Annotated[
        Isolation, _purpose("Where synchronous functions run; if empty, as each function declares")
    ] = ""
    max_jobs: Annotated[Count, _purpose("Restart the process after this many jobs; 0: never")] = 0
    max_memory_mb: Annotated[Megabytes, _purpose("Restart the process above this resident size; 0: never")] = 0
    child_memory_mb: Annotated[
        Megabytes, _purpose("Memory limit of a child process; 0: half of the machine's memory")
    ] = 0
    kill_grace_ms: Annotated[
        SpanMs, _purpose("Time that an interrupted job has to end before it is killed or written off")
    ] = 2_000
    log_level: Annotated[LogLevel, _purpose("Lowest level to log: debug, info, warning or error")] = "info"
    log_format: Annotated[
        LogFormat, _purpose("Log format: json, text, or auto (text on a terminal, otherwise json)")
    ] = "auto"

    @property
    def queue_names(self) -> frozenset[str]:
        return frozenset(name for name in self.queues.split(",") if name)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the commands that send requests to a server."""

    connect: Annotated[Connect, _purpose("Server, data directory or ZooKeeper ensemble to connect to")] = (
        DEFAULT_CONNECT
    )
    token: Annotated[Token, _purpose("Token for servers that require one"), SECRET] = ""


class SettingsError(InvalidArgumentError):
    """Invalid or contradictory settings; `problems` lists all of them."""

    def __init__(self, problems: Collection[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems), reason="SETTINGS_INVALID")


Fields = Mapping[str, msgspec.structs.FieldInfo]


def fields_of(kind: type[msgspec.Struct]) -> Fields:
    """Returns the settings of one kind, by name."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


FIELDS: Fields = fields_of(Settings)
#: Every name that a file or the environment may contain, for any command.
KNOWN: frozenset[str] = frozenset({*FIELDS, *fields_of(WorkerSettings), *fields_of(ClientSettings)})


def wanted(name: str, fields: Fields = FIELDS) -> str:
    """Returns a description of the values that a setting accepts."""
    return str(get_args(fields[name].type)[1].description)


def purpose(name: str, fields: Fields = FIELDS) -> str:
    """Returns the help text of a setting."""
    return str(get_args(fields[name].type)[2].title)


def choices(name: str, fields: Fields = FIELDS) -> tuple[str, ...]:
    """Returns the values of a setting that is an enumeration; empty for others."""
    kind = get_args(fields[name].type)[0]
    return get_args(kind) if get_origin(kind) is Literal else ()


def shown(field: msgspec.structs.FieldInfo, value: object) -> object:
    """Returns the value with secrets masked, including credentials in a URL."""
    is_secret = any((meta.extra or {}).get("secret") for meta in get_args(field.type)[1:])
    if is_secret and value != field.default:
        return MASK
    return masked(value) if isinstance(value, str) else value


def masked(text: str) -> str:
    """Masks the user info of URLs in the text, and passwords in their query strings."""
    return _PASSWORD.sub(rf"\1{MASK}", _CREDENTIALS.sub(rf"\1{MASK}@", text))


_CREDENTIALS = re.compile(r"(://)[^/@\s]*@")
_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&\s]*")


def option_of(name: str) -> str:
    """Returns the command line option of a setting."""
    return f"--{name.replace('_', '-')}"


def unheeded(settings: Settings, topology: str, names: Collection[str]) -> Iterator[str]:
    """Yields a problem for each of these settings that was given although the topology ignores it."""
    for name in names:
        if getattr(settings, name) != FIELDS[name].default:
            yield (
                f"{option_of(name)} (also HOLDFAST_{name.upper()}, or {name} in a file) must not be set, because the"
                f" {topology} topology ignores it, got {getattr(settings, name)}"
            )


def contradictions(settings: Settings, written: Callable[[str], str]) -> Iterator[str]:
    """Yields the problems that the check of single values does not find.

    `written` returns the name of a setting as the user wrote it, or would write it.
    """
    if settings.worker_timeout_ms <= settings.heartbeat_ms:
        yield (
            f"{written('worker_timeout_ms')} must be more than {written('heartbeat_ms')} ({settings.heartbeat_ms}), "
            f"got {settings.worker_timeout_ms}"
        )
    # A default that exceeds a shorter lease is not an error: the lease expires first.
    if settings.reconnect_grace_ms > settings.lease_ms and settings.reconnect_grace_ms != limits.RECONNECT_GRACE_MS:
        yield (
            f"{written('reconnect_grace_ms')} must be at most {written('lease_ms')} ({settings.lease_ms}), because the"
            f" lease of a silent worker expires after that, got {settings.reconnect_grace_ms}"
        )
    if 0 < settings.memory_bytes < limits.MEMORY_BYTES_MIN:
        yield (
            f"{written('memory_bytes')} must be at least {limits.MEMORY_BYTES_MIN} (16 MiB), or 0 for half of the"
            f" memory of the machine or container, got {settings.memory_bytes}"
        )
    yield from _shared_ports(settings, written)
    yield from _half_certificates(settings, written)
    if settings.insecure or is_loopback(settings.host):
        return
    if not settings.tls_cert:
        yield (
            f"{written('host')} must be a loopback address unless --insecure is given, got {settings.host!r}; "
            "set --tls-cert and --tls-key, and create tokens with `holdfast token create`"
        )
    if settings.metrics_port:
        yield (
            f"{written('metrics_port')} must be 0 on a non-loopback address unless --insecure is given, because it has "
            f"neither TLS nor tokens, got {settings.metrics_port}; use /metrics of the HTTP port, which needs a token"
        )


def _half_certificates(settings: Settings, written: Callable[[str], str]) -> Iterator[str]:
    """Yields problems of incomplete TLS settings."""
    certificate, key = written("tls_cert"), written("tls_key")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        yield f"{certificate} and {key} must be given together, got only {certificate if settings.tls_cert else key}"
    if settings.tls_client_ca and not settings.tls_cert:
        yield f"{written('tls_client_ca')} must be given with {certificate} and {key}, got it without them"


def _shared_ports(settings: Settings, written: Callable[[str], str]) -> Iterator[str]:
    """Yields a problem for each port number that is used twice."""
    taken = {settings.port: "port"}
    for name in ("metrics_port",) if settings.no_http else ("http_port", "metrics_port"):
        port = getattr(settings, name)
        if port and port in taken:
            yield f"{written(name)} must differ from {written(taken[port])}, got {port} for both"
        taken.setdefault(port, name)


_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@?\[\]]+):(?P<port>[0-9]{1,5})")
_TARGET = re.compile(r"(?:holdfasts?://(?:[^/@\s]*@)?)?(?P<addresses>[^/@?]+)/?(?:\?[^\s]*)?")
_PORT_MAX = 65_535


def address_of(target: str) -> str:
    """Returns the `host:port` of `host:port` or `holdfast://host:port`; empty for anything else."""
    addresses = addresses_of(target)
    return addresses[0] if len(addresses) == 1 else ""


def addresses_of(target: str) -> list[str]:
    """Returns the addresses of `host:port,host:port`, with or without a scheme; empty if one is invalid or repeated.

    Each address may have its own scheme. User info, path and query of a URL are ignored.
    """
    found = [_TARGET.fullmatch(part.strip()) for part in _parts(target)]
    addresses = [part.strip() for one in found if one is not None for part in one["addresses"].split(",")]
    are_good = None not in found and all(map(_is_address, addresses))
    return addresses if are_good and len(set(addresses)) == len(addresses) <= limits.NODES_MAX else []


def _parts(target: str) -> list[str]:
    """Splits the target before each scheme."""
    return re.split(r",\s*(?=holdfasts?://)", target)


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"]) <= _PORT_MAX


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach the address; of names, only localhost counts as loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
