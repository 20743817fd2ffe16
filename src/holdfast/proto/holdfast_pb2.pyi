from . import taskqueue_public_pb2 as _taskqueue_public_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BackoffKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKOFF_KIND_UNSPECIFIED: _ClassVar[BackoffKind]
    BACKOFF_KIND_FIXED: _ClassVar[BackoffKind]
    BACKOFF_KIND_EXPONENTIAL: _ClassVar[BackoffKind]
    BACKOFF_KIND_QUADRATIC: _ClassVar[BackoffKind]
BACKOFF_KIND_UNSPECIFIED: BackoffKind
BACKOFF_KIND_FIXED: BackoffKind
BACKOFF_KIND_EXPONENTIAL: BackoffKind
BACKOFF_KIND_QUADRATIC: BackoffKind

class Backoff(_message.Message):
    __slots__ = ("kind", "base_ms", "max_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    kind: BackoffKind
    base_ms: int
    max_ms: int
    def __init__(self, kind: _Optional[_Union[BackoffKind, str]] = ..., base_ms: _Optional[int] = ..., max_ms: _Optional[int] = ...) -> None: ...

class JobTemplate(_message.Message):
    __slots__ = ("type", "queue", "priority", "max_attempts", "max_losses", "timeout_ms", "backoff")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_LOSSES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    type: str
    queue: str
    priority: int
    max_attempts: int
    max_losses: int
    timeout_ms: int
    backoff: Backoff
    def __init__(self, type: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_losses: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("template", "payload", "request_id", "delay_ms", "not_before_ms", "labels", "headers", "retry_of")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    template: int
    payload: bytes
    request_id: str
    delay_ms: int
    not_before_ms: int
    labels: _containers.ScalarMap[str, str]
    headers: _containers.ScalarMap[str, str]
    retry_of: str
    def __init__(self, template: _Optional[int] = ..., payload: _Optional[bytes] = ..., request_id: _Optional[str] = ..., delay_ms: _Optional[int] = ..., not_before_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., retry_of: _Optional[str] = ...) -> None: ...

class SubmitJobsRequest(_message.Message):
    __slots__ = ("templates", "jobs")
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    templates: _containers.RepeatedCompositeFieldContainer[JobTemplate]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, templates: _Optional[_Iterable[_Union[JobTemplate, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class SubmitJobsResponse(_message.Message):
    __slots__ = ("job_ids", "accepted_at_ms", "refusals")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    accepted_at_ms: int
    refusals: _containers.RepeatedCompositeFieldContainer[SubmitRefusal]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ..., accepted_at_ms: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[SubmitRefusal, _Mapping]]] = ...) -> None: ...

class SubmitRefusal(_message.Message):
    __slots__ = ("index", "reason", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: str
    message: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ExplainJobResponse(_message.Message):
    __slots__ = ("job_id", "status", "reason", "explanation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: _taskqueue_public_pb2.JobStatus
    reason: str
    explanation: str
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., reason: _Optional[str] = ..., explanation: _Optional[str] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "credits", "outcomes", "heartbeat", "released", "draining", "report_id")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credits: int
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    heartbeat: Heartbeat
    released: _containers.RepeatedScalarFieldContainer[int]
    draining: bool
    report_id: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credits: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., released: _Optional[_Iterable[int]] = ..., draining: _Optional[bool] = ..., report_id: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker_id", "types", "queues", "slots", "held")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    types: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, worker_id: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("job_id", "token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("seen_token",)
    SEEN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    seen_token: int
    def __init__(self, seen_token: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("job_id", "token", "status", "output", "summary", "failure_reason", "runtime_ms", "retryable", "retry_after_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    status: _taskqueue_public_pb2.JobStatus
    output: bytes
    summary: str
    failure_reason: str
    runtime_ms: int
    retryable: bool
    retry_after_ms: int
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ..., status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., output: _Optional[bytes] = ..., summary: _Optional[str] = ..., failure_reason: _Optional[str] = ..., runtime_ms: _Optional[int] = ..., retryable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class CoordinatorMessage(_message.Message):
    __slots__ = ("welcome", "leases", "cancels", "revoked", "reported", "stopping", "drained")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    cancels: _containers.RepeatedScalarFieldContainer[int]
    revoked: _containers.RepeatedScalarFieldContainer[int]
    reported: int
    stopping: bool
    drained: bool
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., cancels: _Optional[_Iterable[int]] = ..., revoked: _Optional[_Iterable[int]] = ..., reported: _Optional[int] = ..., stopping: _Optional[bool] = ..., drained: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lease_ms", "heartbeat_ms", "epoch", "cluster_id")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    heartbeat_ms: int
    epoch: int
    cluster_id: str
    def __init__(self, lease_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "token", "type", "payload", "attempt", "timeout_ms", "simulated", "work_duration_ms", "payload_size_bytes", "labels", "headers", "queue")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    WORK_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    type: str
    payload: bytes
    attempt: int
    timeout_ms: int
    simulated: bool
    work_duration_ms: int
    payload_size_bytes: int
    labels: _containers.ScalarMap[str, str]
    headers: _containers.ScalarMap[str, str]
    queue: str
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ..., type: _Optional[str] = ..., payload: _Optional[bytes] = ..., attempt: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., simulated: _Optional[bool] = ..., work_duration_ms: _Optional[int] = ..., payload_size_bytes: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., queue: _Optional[str] = ...) -> None: ...
