"""Which settings there are: for each its type, its limits, its default and its purpose, in one line.

Help, reference and refusals are made from these lines; `settings_sources` says where values come from.
"""

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal, get_args, get_origin

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError

MEMORY = "memory://"
TOKENS_NAME = "tokens.json"
SERVER = "holdfast://"
#: The same over TLS.
SECURE_SERVER = "holdfasts://"
DEFAULT_CONNECT = "127.0.0.1:50051"
#: A ZooKeeper ensemble, as the hosts of its servers and the path below which jobs are.
ENSEMBLE = "zk://"
#: How long a worker's bids outlive its silence there, where nothing else is said.
SESSION_MS = 10_000
ENSEMBLE_PATTERN = r"[^\s/,@?#]+(,[^\s/,@?#]+)*(/[\w./-]*)?(\?auth_file=[^\s?#&]+)?"

_DAY_MS = 86_400_000
_MIB = 1_048_576


def _whole(minimum: int, maximum: int, unit: str) -> msgspec.Meta:
    text = f"a whole number of {unit} from {minimum} to {maximum}"
    return msgspec.Meta(ge=minimum, le=maximum, description=text)


def _purpose(text: str) -> msgspec.Meta:
    return msgspec.Meta(title=text)


#: Marks a setting whose value is shown to nobody.
SECRET = msgspec.Meta(extra={"secret": True})
MASK = "********"


Data = Annotated[
    str,
    msgspec.Meta(pattern=r"^(memory://|(?!\w+://)[^\0]+)$", description="a directory, or memory://"),
]
Host = Annotated[str, msgspec.Meta(min_length=1, description="an address to listen on")]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535, description="a port, 0 to 65535 (0: any that is free)")]
MetricsPort = Annotated[int, msgspec.Meta(ge=0, le=65_535, description="a port, 1 to 65535, or 0 for none")]
Connect = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description=(
            "host:port, holdfast://host:port, several of them with commas, a directory of jobs, or zk://host:port/path"
        ),
    ),
]
Token = Annotated[str, msgspec.Meta(pattern=r"^[!-~]*$", description="a token as it was shown when it was made")]
FilePath = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*$", description="the path of a file")]
HostNames = Annotated[
    str, msgspec.Meta(pattern=r"^[^\s/@]*$", description="names of hosts with commas, without ports, or *")
]
PerSecond = Annotated[int, _whole(0, 1_000_000_000, "requests a second")]
Queues = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({limits.NAME_PATTERN}(,{limits.NAME_PATTERN})*)?$", description="names of queues, with commas"
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
TopologyName = Annotated[
    Literal["embedded", "microservices", "monolith", "pipeline", "zookeeper"],
    msgspec.Meta(description="one of embedded, microservices, monolith, pipeline, zookeeper"),
]
DatabaseUrl = Annotated[
    str,
    msgspec.Meta(pattern=r"^(postgres(ql)?://\S*)?$", description="a URL such as postgresql://user@host/database"),
]
EnsembleHosts = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^((zk://)?{ENSEMBLE_PATTERN})?$",
        description="hosts with commas, perhaps a path and ?auth_file=FILE, such as zk1:2181,zk2:2181/holdfast",
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
        description=f"at most {limits.NAME_CHARS_MAX} of letters, digits, dot, underscore and hyphen",
    ),
]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a server can be told."""

    data: Annotated[Data, _purpose("where jobs are kept; memory://: only until it stops")] = "./holdfast-data"
    host: Annotated[Host, _purpose("the address to listen on")] = "127.0.0.1"
    port: Annotated[Port, _purpose("the port to listen on; 0: any that is free")] = 50_051
    http_port: Annotated[Port, _purpose("the port for HTTP and the dashboard; 0: any that is free")] = 8_080
    no_http: Annotated[Switch, _purpose("serve gRPC alone, without HTTP and the dashboard")] = False
    metrics_port: Annotated[MetricsPort, _purpose("the port for /metrics, /livez and /readyz; 0: none")] = 0
    slots: Annotated[Slots, _purpose("how many jobs the worker beside the server runs at a time")] = 8
    lease_ms: Annotated[LeaseMs, _purpose("how long a worker may keep a job without a word")] = limits.LEASE_MS_DEFAULT
    heartbeat_ms: Annotated[PeriodMs, _purpose("how often a worker says that it lives")] = limits.HEARTBEAT_MS
    worker_timeout_ms: Annotated[PeriodMs, _purpose("a worker silent for so long gets no more jobs")] = (
        limits.WORKER_TIMEOUT_MS
    )
    reconnect_grace_ms: Annotated[
        SpanMs,
        _purpose("a worker whose connection drops keeps its jobs if it is back within this time; 0: it loses them"),
    ] = limits.RECONNECT_GRACE_MS
    aging_ms: Annotated[SpanMs, _purpose("waiting this long counts as one step of priority; 0: it never does")] = (
        limits.AGING_MS_DEFAULT
    )
    retain_ms: Annotated[SpanMs, _purpose("a job that ended DONE or CANCELED longer ago is removed")] = (
        limits.RETAIN_MS_DEFAULT
    )
    retain_failed_ms: Annotated[SpanMs, _purpose("the same for FAILED jobs; by default at least retain_ms")] = (
        limits.RETAIN_FAILED_MS_DEFAULT
    )
    retain_jobs: Annotated[Count, _purpose("beyond so many finished jobs the oldest are forgotten")] = (
        limits.RETAIN_JOBS_DEFAULT
    )
    retain_bytes: Annotated[Size, _purpose("beyond so much of finished jobs the oldest are forgotten")] = (
        limits.RETAIN_BYTES_DEFAULT
    )
    memory_bytes: Annotated[
        Size,
        _purpose(
            "above this size of held jobs submits are refused; 0: half of the machine's or the container's memory"
        ),
    ] = 0
    history_ms: Annotated[SpanMs, _purpose("how far back the journal is kept")] = 7 * _DAY_MS
    history_bytes: Annotated[
        Size, _purpose("beyond so much journal the oldest part that snapshots cover is removed")
    ] = limits.HISTORY_BYTES_DEFAULT
    segment_bytes: Annotated[FileSize, _purpose("the size at which a file of the journal is closed")] = 64 * _MIB
    snapshot_bytes: Annotated[FileSize, _purpose("a snapshot is made after so much journal")] = 256 * _MIB
    log_level: Annotated[LogLevel, _purpose("what is logged: debug, info, warning or error and up")] = "info"
    log_format: Annotated[LogFormat, _purpose("json, text, or auto: text on a terminal, else json")] = "auto"
    dedup_keys_max: Annotated[Count, _purpose("how many request ids to remember; 0: each as long as its job")] = 0
    tokens: Annotated[FilePath, _purpose("the file of tokens; if empty, tokens.json in the data directory")] = ""
    tls_cert: Annotated[FilePath, _purpose("the server's certificate, as PEM, with the intermediate certificates")] = ""
    tls_key: Annotated[FilePath, _purpose("the key of that certificate, as PEM")] = ""
    tls_client_ca: Annotated[FilePath, _purpose("who must have signed the certificates that clients show")] = ""
    allowed_hosts: Annotated[HostNames, _purpose("names by which browsers may reach HTTP, beside the address")] = ""
    rate_limit: Annotated[PerSecond, _purpose("requests a second of one caller; 0: any number")] = (
        limits.REQUESTS_PER_S_DEFAULT
    )
    work_rate_limit: Annotated[PerSecond, _purpose("the same for the calls of workers")] = limits.WORK_PER_S_DEFAULT
    grpc_connections: Annotated[
        Connections, _purpose("gRPC connections at a time; beyond it the oldest idle ones are ended")
    ] = limits.GRPC_CONNECTIONS_MAX
    insecure: Annotated[Switch, _purpose("listen beyond loopback, where nothing protects the jobs")] = False
    reflection: Annotated[Switch, _purpose("let clients such as grpcurl ask which calls there are")] = False
    worker_id: Annotated[WorkerId, _purpose("the name of the worker beside the server")] = ""
    app: Annotated[AppPath, _purpose("whose jobs the worker beside the server runs, beside the built-in types")] = ""

    topology: Annotated[
        TopologyName, _purpose("which processes serve: embedded, microservices, monolith, pipeline or zookeeper")
    ] = "embedded"
    nodes: Annotated[Nodes, _purpose("how many nodes the monolith topology has")] = 6
    database: Annotated[DatabaseUrl, _purpose("the PostgreSQL of the pipeline topology; if empty, one of its own")] = ""
    ensemble: Annotated[EnsembleHosts, _purpose("where the zookeeper topology meets; if empty, one of its own")] = ""
    retries: Annotated[Retries, _purpose("how often the pipeline tries a job of a short endpoint again")] = 3
    retry_ms: Annotated[RetryMs, _purpose("the n-th of these tries comes n times n times this later")] = 10_000

    @property
    def is_in_memory(self) -> bool:
        return self.data == MEMORY

    @property
    def failed_retention_ms(self) -> int:
        """How long FAILED jobs are kept: as long as the others at least, unless a shorter time was asked for."""
        is_default = self.retain_failed_ms == limits.RETAIN_FAILED_MS_DEFAULT
        return max(self.retain_ms, self.retain_failed_ms) if is_default else self.retain_failed_ms

    @property
    def tokens_file(self) -> str:
        """Where the tokens are; nothing if there can be none."""
        return self.tokens or ("" if self.is_in_memory else f"{self.data.rstrip('/') or '/'}/{TOKENS_NAME}")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker can be told."""

    connect: Annotated[Connect, _purpose("where the server is")] = DEFAULT_CONNECT
    token: Annotated[Token, _purpose("what to show a server that wants one"), SECRET] = ""
    queues: Annotated[Queues, _purpose("the queues to serve; all if none is named")] = ""
    slots: Annotated[Slots, _purpose("how many jobs to run at a time")] = 8
    worker_id: Annotated[WorkerId, _purpose("a name of its own; if empty, made from the host's name")] = ""
    drain_ms: Annotated[SpanMs, _purpose("how long a stop waits for running jobs")] = 30_000
    app: Annotated[AppPath, _purpose("whose jobs to run; without one, the built-in types only")] = ""
    isolation: Annotated[Isolation, _purpose("where ordinary functions run; if empty, where each says")] = ""
    max_jobs: Annotated[Count, _purpose("a process is replaced after so many jobs; 0: never")] = 0
    max_memory_mb: Annotated[Megabytes, _purpose("a process larger than this is replaced; 0: never")] = 0
    child_memory_mb: Annotated[Megabytes, _purpose("what a child may allocate; 0: half of the machine's memory")] = 0
    kill_grace_ms: Annotated[SpanMs, _purpose("how long a job that must end may take for it")] = 2_000
    log_level: Annotated[LogLevel, _purpose("what is logged: debug, info, warning or error and up")] = "info"
    log_format: Annotated[LogFormat, _purpose("json, text, or auto: text on a terminal, else json")] = "auto"

    @property
    def queue_names(self) -> frozenset[str]:
        return frozenset(name for name in self.queues.split(",") if name)


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the commands need that ask a server for something."""

    connect: Annotated[Connect, _purpose("where the server is")] = DEFAULT_CONNECT
    token: Annotated[Token, _purpose("what to show a server that wants one"), SECRET] = ""


class SettingsError(InvalidArgumentError):
    """The settings contradict themselves or the rules; `problems` lists everything that is wrong."""

    def __init__(self, problems: Collection[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems), reason="SETTINGS_INVALID")


Fields = Mapping[str, msgspec.structs.FieldInfo]


def fields_of(kind: type[msgspec.Struct]) -> Fields:
    """The settings of one kind, by name."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


FIELDS: Fields = fields_of(Settings)
#: Those that only the pipeline topology heeds.
OF_THE_PIPELINE = frozenset({"database", "retries", "retry_ms"})
#: Those that only the zookeeper topology heeds.
OF_ZOOKEEPER = frozenset({"ensemble"})
#: Every name that may stand in a file or in the environment, whichever command it concerns.
KNOWN: frozenset[str] = frozenset({*FIELDS, *fields_of(WorkerSettings), *fields_of(ClientSettings)})


def wanted(name: str, fields: Fields = FIELDS) -> str:
    """Which values a setting takes, in words."""
    return str(get_args(fields[name].type)[1].description)


def purpose(name: str, fields: Fields = FIELDS) -> str:
    """What a setting is for, in words."""
    return str(get_args(fields[name].type)[2].title)


def choices(name: str, fields: Fields = FIELDS) -> tuple[str, ...]:
    """The values that a setting can have, if they can be listed."""
    kind = get_args(fields[name].type)[0]
    return get_args(kind) if get_origin(kind) is Literal else ()


def shown(field: msgspec.structs.FieldInfo, value: object) -> object:
    """A value that may be shown: secrets are masked, and so is what stands before the @ of an address."""
    is_secret = any((meta.extra or {}).get("secret") for meta in get_args(field.type)[1:])
    if is_secret and value != field.default:
        return MASK
    return masked(value) if isinstance(value, str) else value


def masked(text: str) -> str:
    """The text without what stands before the @ of an address, or after the name of a password in its query."""
    return _PASSWORD.sub(rf"\1{MASK}", _CREDENTIALS.sub(rf"\1{MASK}@", text))


_CREDENTIALS = re.compile(r"(://)[^/@\s]*@")
_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&\s]*")


def contradictions(settings: Settings) -> Iterator[str]:
    """Everything that no single value is to blame for."""
    if settings.worker_timeout_ms <= settings.heartbeat_ms:
        yield (
            f"expected worker_timeout_ms to be more than heartbeat_ms ({settings.heartbeat_ms}), "
            f"got {settings.worker_timeout_ms}"
        )
    # The default is no mistake beside a shorter lease, which ends first.
    if settings.reconnect_grace_ms > settings.lease_ms and settings.reconnect_grace_ms != limits.RECONNECT_GRACE_MS:
        yield (
            f"expected reconnect_grace_ms to be at most lease_ms ({settings.lease_ms}), because the jobs of a silent"
            f" worker are handed on after that, got {settings.reconnect_grace_ms}"
        )
    if 0 < settings.memory_bytes < limits.MEMORY_BYTES_MIN:
        yield (
            f"expected memory_bytes to be at least {limits.MEMORY_BYTES_MIN} (16 MiB), or 0 for half of the machine's"
            f" or the container's memory, got {settings.memory_bytes}"
        )
    yield from _shared_ports(settings)
    yield from _half_certificates(settings)
    if settings.insecure or is_loopback(settings.host):
        return
    if not settings.tls_cert:
        yield (
            f"expected host to be a loopback address unless --insecure is given, got {settings.host!r}; "
            "there is no TLS here to protect the jobs: give --tls-cert and --tls-key, and make tokens"
        )
    if settings.metrics_port:
        yield (
            "expected metrics_port to be 0 beyond loopback unless --insecure is given, because it speaks in the clear "
            f"to everybody, got {settings.metrics_port}; /metrics of HTTP asks for a token"
        )


def _half_certificates(settings: Settings) -> Iterator[str]:
    """TLS of which something is missing."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        given = "tls_cert" if settings.tls_cert else "tls_key"
        yield f"expected tls_cert and tls_key to be given together, got {given} alone"
    if settings.tls_client_ca and not settings.tls_cert:
        yield "expected tls_client_ca to come with tls_cert and tls_key, got it alone"


def _shared_ports(settings: Settings) -> Iterator[str]:
    """Ports that were given twice."""
    taken = {settings.port: "port"}
    for name in ("metrics_port",) if settings.no_http else ("http_port", "metrics_port"):
        port = getattr(settings, name)
        if port and port in taken:
            yield f"expected {name} to be another than {taken[port]}, got {port} for both"
        taken.setdefault(port, name)


_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s/:@?\[\]]+):(?P<port>[0-9]{1,5})")
_TARGET = re.compile(r"(?:holdfasts?://(?:[^/@\s]*@)?)?(?P<addresses>[^/@?]+)/?(?:\?[^\s]*)?")
_PORT_MAX = 65_535


def address_of(target: str) -> str:
    """The `host:port` of `host:port` or `holdfast://host:port`; nothing if it is neither."""
    addresses = addresses_of(target)
    return addresses[0] if len(addresses) == 1 else ""


def addresses_of(target: str) -> list[str]:
    """The addresses of `host:port,host:port`, with the scheme or not; nothing if one of them is none, or is twice.

    A scheme may stand before each of them. What else a URL says is no part of the addresses.
    """
    found = [_TARGET.fullmatch(part.strip()) for part in _parts(target)]
    addresses = [part.strip() for one in found if one is not None for part in one["addresses"].split(",")]
    are_good = None not in found and all(map(_is_address, addresses))
    return addresses if are_good and len(set(addresses)) == len(addresses) <= limits.NODES_MAX else []


def _parts(target: str) -> list[str]:
    """One for each scheme that is said again."""
    return re.split(r",\s*(?=holdfasts?://)", target)


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"]) <= _PORT_MAX


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; a name other than localhost could mean anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
