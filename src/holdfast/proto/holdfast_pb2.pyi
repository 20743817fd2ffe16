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

class QueueMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    QUEUE_MODE_UNSPECIFIED: _ClassVar[QueueMode]
    QUEUE_MODE_OPEN: _ClassVar[QueueMode]
    QUEUE_MODE_PAUSED: _ClassVar[QueueMode]
    QUEUE_MODE_DRAINING: _ClassVar[QueueMode]
BACKOFF_KIND_UNSPECIFIED: BackoffKind
BACKOFF_KIND_FIXED: BackoffKind
BACKOFF_KIND_EXPONENTIAL: BackoffKind
BACKOFF_KIND_QUADRATIC: BackoffKind
QUEUE_MODE_UNSPECIFIED: QueueMode
QUEUE_MODE_OPEN: QueueMode
QUEUE_MODE_PAUSED: QueueMode
QUEUE_MODE_DRAINING: QueueMode

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
    __slots__ = ("template", "payload", "request_id", "delay_ms", "not_before_ms", "labels", "headers", "retry_of", "unique_key", "id")
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
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    template: int
    payload: bytes
    request_id: str
    delay_ms: int
    not_before_ms: int
    labels: _containers.ScalarMap[str, str]
    headers: _containers.ScalarMap[str, str]
    retry_of: str
    unique_key: str
    id: str
    def __init__(self, template: _Optional[int] = ..., payload: _Optional[bytes] = ..., request_id: _Optional[str] = ..., delay_ms: _Optional[int] = ..., not_before_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., retry_of: _Optional[str] = ..., unique_key: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class SubmitJobsRequest(_message.Message):
    __slots__ = ("templates", "jobs")
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    templates: _containers.RepeatedCompositeFieldContainer[JobTemplate]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, templates: _Optional[_Iterable[_Union[JobTemplate, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class SubmitJobsResponse(_message.Message):
    __slots__ = ("job_ids", "accepted_at_ms", "refusals", "existing")
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    accepted_at_ms: int
    refusals: _containers.RepeatedCompositeFieldContainer[SubmitRefusal]
    existing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ..., accepted_at_ms: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[SubmitRefusal, _Mapping]]] = ..., existing: _Optional[_Iterable[int]] = ...) -> None: ...

class SubmitRefusal(_message.Message):
    __slots__ = ("index", "reason", "message", "code")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    index: int
    reason: str
    message: str
    code: str
    def __init__(self, index: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

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

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "with_payload", "with_output")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    WITH_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    with_payload: bool
    with_output: bool
    def __init__(self, job_id: _Optional[str] = ..., with_payload: _Optional[bool] = ..., with_output: _Optional[bool] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "template", "status", "created_at_ms", "started_at_ms", "finished_at_ms", "not_before_ms", "cancel_requested", "failure_reason", "summary", "attempts", "failures", "losses", "runtime_ms", "request_id", "unique_key", "retry_of", "labels", "headers", "payload", "output", "worker_id", "token", "progress", "simulated")
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
    ID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    template: JobTemplate
    status: _taskqueue_public_pb2.JobStatus
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    not_before_ms: int
    cancel_requested: bool
    failure_reason: str
    summary: str
    attempts: int
    failures: int
    losses: int
    runtime_ms: int
    request_id: str
    unique_key: str
    retry_of: str
    labels: _containers.ScalarMap[str, str]
    headers: _containers.ScalarMap[str, str]
    payload: bytes
    output: bytes
    worker_id: str
    token: int
    progress: Progress
    simulated: bool
    def __init__(self, id: _Optional[str] = ..., template: _Optional[_Union[JobTemplate, _Mapping]] = ..., status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., created_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., not_before_ms: _Optional[int] = ..., cancel_requested: _Optional[bool] = ..., failure_reason: _Optional[str] = ..., summary: _Optional[str] = ..., attempts: _Optional[int] = ..., failures: _Optional[int] = ..., losses: _Optional[int] = ..., runtime_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., unique_key: _Optional[str] = ..., retry_of: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., payload: _Optional[bytes] = ..., output: _Optional[bytes] = ..., worker_id: _Optional[str] = ..., token: _Optional[int] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., simulated: _Optional[bool] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("permille", "message", "at_ms")
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    permille: int
    message: str
    at_ms: int
    def __init__(self, permille: _Optional[int] = ..., message: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class FindJobsRequest(_message.Message):
    __slots__ = ("status", "queue", "type", "labels", "created_from_ms", "created_before_ms", "oldest_first", "page_size", "cursor")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    status: _containers.RepeatedScalarFieldContainer[_taskqueue_public_pb2.JobStatus]
    queue: str
    type: str
    labels: _containers.ScalarMap[str, str]
    created_from_ms: int
    created_before_ms: int
    oldest_first: bool
    page_size: int
    cursor: str
    def __init__(self, status: _Optional[_Iterable[_Union[_taskqueue_public_pb2.JobStatus, str]]] = ..., queue: _Optional[str] = ..., type: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., created_from_ms: _Optional[int] = ..., created_before_ms: _Optional[int] = ..., oldest_first: _Optional[bool] = ..., page_size: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class FindJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_cursor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_cursor: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class AwaitJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class RetryJobRequest(_message.Message):
    __slots__ = ("job_id", "request_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    request_id: str
    def __init__(self, job_id: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RetryJobResponse(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("position", "at_ms", "job_id", "what", "state", "worker_id", "token", "reason", "detail")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    position: int
    at_ms: int
    job_id: str
    what: str
    state: str
    worker_id: str
    token: int
    reason: str
    detail: str
    def __init__(self, position: _Optional[int] = ..., at_ms: _Optional[int] = ..., job_id: _Optional[str] = ..., what: _Optional[str] = ..., state: _Optional[str] = ..., worker_id: _Optional[str] = ..., token: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class FeedRequest(_message.Message):
    __slots__ = ("after", "from_now")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FROM_NOW_FIELD_NUMBER: _ClassVar[int]
    after: int
    from_now: bool
    def __init__(self, after: _Optional[int] = ..., from_now: _Optional[bool] = ...) -> None: ...

class FeedResponse(_message.Message):
    __slots__ = ("entries", "position")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    position: int
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., position: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "method", "body", "cancel")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    body: bytes
    cancel: bool
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., body: _Optional[bytes] = ..., cancel: _Optional[bool] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("id", "body", "more", "code", "reason", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    body: bytes
    more: bool
    code: str
    reason: str
    message: str
    def __init__(self, id: _Optional[int] = ..., body: _Optional[bytes] = ..., more: _Optional[bool] = ..., code: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stats(_message.Message):
    __slots__ = ("position", "now_ms", "states", "bytes_held", "epoch", "cluster_id", "workers", "slots", "leases", "socket", "nodes", "node_index", "bytes_held_max", "warnings")
    class StatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_HELD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_INDEX_FIELD_NUMBER: _ClassVar[int]
    BYTES_HELD_MAX_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    position: int
    now_ms: int
    states: _containers.ScalarMap[str, int]
    bytes_held: int
    epoch: int
    cluster_id: str
    workers: int
    slots: int
    leases: int
    socket: str
    nodes: int
    node_index: int
    bytes_held_max: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, position: _Optional[int] = ..., now_ms: _Optional[int] = ..., states: _Optional[_Mapping[str, int]] = ..., bytes_held: _Optional[int] = ..., epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ..., workers: _Optional[int] = ..., slots: _Optional[int] = ..., leases: _Optional[int] = ..., socket: _Optional[str] = ..., nodes: _Optional[int] = ..., node_index: _Optional[int] = ..., bytes_held_max: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "mode", "reason", "ready", "delayed", "running", "oldest_age_ms", "types")
    class TypesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    name: str
    mode: QueueMode
    reason: str
    ready: int
    delayed: int
    running: int
    oldest_age_ms: int
    types: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., mode: _Optional[_Union[QueueMode, str]] = ..., reason: _Optional[str] = ..., ready: _Optional[int] = ..., delayed: _Optional[int] = ..., running: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., types: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ...) -> None: ...

class SetQueueModeRequest(_message.Message):
    __slots__ = ("queue", "mode", "reason")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    queue: str
    mode: QueueMode
    reason: str
    def __init__(self, queue: _Optional[str] = ..., mode: _Optional[_Union[QueueMode, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class SetQueueModeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("queue", "reason")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    queue: str
    reason: str
    def __init__(self, queue: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("canceled",)
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    canceled: int
    def __init__(self, canceled: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "types", "queues", "slots", "running", "draining", "streaming", "heard_ms_ago")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    types: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    running: int
    draining: bool
    streaming: bool
    heard_ms_ago: int
    def __init__(self, worker_id: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., running: _Optional[int] = ..., draining: _Optional[bool] = ..., streaming: _Optional[bool] = ..., heard_ms_ago: _Optional[int] = ...) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCapabilitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("backend", "version", "capabilities", "missing")
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    backend: str
    version: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.ScalarMap[str, str]
    def __init__(self, backend: _Optional[str] = ..., version: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., missing: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetWirePortRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WirePort(_message.Message):
    __slots__ = ("port", "grpc_port")
    PORT_FIELD_NUMBER: _ClassVar[int]
    GRPC_PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    grpc_port: int
    def __init__(self, port: _Optional[int] = ..., grpc_port: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "credits", "outcomes", "heartbeat", "released", "draining", "report_id", "notes", "recalling", "leaving")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    RECALLING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credits: int
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    heartbeat: Heartbeat
    released: _containers.RepeatedScalarFieldContainer[int]
    draining: bool
    report_id: int
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    recalling: bool
    leaving: bool
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credits: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., released: _Optional[_Iterable[int]] = ..., draining: _Optional[bool] = ..., report_id: _Optional[int] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ..., recalling: _Optional[bool] = ..., leaving: _Optional[bool] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("job_id", "token", "permille", "message", "lines")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    permille: int
    message: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ..., permille: _Optional[int] = ..., message: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker_id", "types", "queues", "slots", "held", "instance", "dies_with_server")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    DIES_WITH_SERVER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    types: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    instance: str
    dies_with_server: bool
    def __init__(self, worker_id: _Optional[str] = ..., types: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., instance: _Optional[str] = ..., dies_with_server: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("welcome", "leases", "cancels", "revoked", "reported", "stopping", "drained", "drain", "ending", "recalled")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    cancels: _containers.RepeatedScalarFieldContainer[int]
    revoked: _containers.RepeatedScalarFieldContainer[int]
    reported: int
    stopping: bool
    drained: bool
    drain: bool
    ending: Ending
    recalled: bool
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., cancels: _Optional[_Iterable[int]] = ..., revoked: _Optional[_Iterable[int]] = ..., reported: _Optional[int] = ..., stopping: _Optional[bool] = ..., drained: _Optional[bool] = ..., drain: _Optional[bool] = ..., ending: _Optional[_Union[Ending, _Mapping]] = ..., recalled: _Optional[bool] = ...) -> None: ...

class Ending(_message.Message):
    __slots__ = ("code", "reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    message: str
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lease_ms", "heartbeat_ms", "epoch", "cluster_id", "renews_leases")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RENEWS_LEASES_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    heartbeat_ms: int
    epoch: int
    cluster_id: str
    renews_leases: bool
    def __init__(self, lease_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ..., renews_leases: _Optional[bool] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "token", "type", "payload", "attempt", "timeout_ms", "simulated", "work_duration_ms", "payload_size_bytes", "labels", "headers", "queue", "retries_left")
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
    RETRIES_LEFT_FIELD_NUMBER: _ClassVar[int]
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
    retries_left: int
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ..., type: _Optional[str] = ..., payload: _Optional[bytes] = ..., attempt: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., simulated: _Optional[bool] = ..., work_duration_ms: _Optional[int] = ..., payload_size_bytes: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., headers: _Optional[_Mapping[str, str]] = ..., queue: _Optional[str] = ..., retries_left: _Optional[int] = ...) -> None: ...

class ScheduleSpec(_message.Message):
    __slots__ = ("name", "template", "payload", "cron", "every_ms", "at_ms", "timezone", "catch_up", "catch_up_window_ms", "overlap", "jitter_ms", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    template: JobTemplate
    payload: bytes
    cron: str
    every_ms: int
    at_ms: int
    timezone: str
    catch_up: str
    catch_up_window_ms: int
    overlap: str
    jitter_ms: int
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., template: _Optional[_Union[JobTemplate, _Mapping]] = ..., payload: _Optional[bytes] = ..., cron: _Optional[str] = ..., every_ms: _Optional[int] = ..., at_ms: _Optional[int] = ..., timezone: _Optional[str] = ..., catch_up: _Optional[str] = ..., catch_up_window_ms: _Optional[int] = ..., overlap: _Optional[str] = ..., jitter_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("spec", "is_paused", "created_at_ms", "next_at_ms", "last_tick_ms", "last_job_id", "fired", "skipped", "missed")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TICK_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    spec: ScheduleSpec
    is_paused: bool
    created_at_ms: int
    next_at_ms: int
    last_tick_ms: int
    last_job_id: str
    fired: int
    skipped: int
    missed: int
    def __init__(self, spec: _Optional[_Union[ScheduleSpec, _Mapping]] = ..., is_paused: _Optional[bool] = ..., created_at_ms: _Optional[int] = ..., next_at_ms: _Optional[int] = ..., last_tick_ms: _Optional[int] = ..., last_job_id: _Optional[str] = ..., fired: _Optional[int] = ..., skipped: _Optional[int] = ..., missed: _Optional[int] = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ...) -> None: ...

class DeleteScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name", "is_paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_paused: bool
    def __init__(self, name: _Optional[str] = ..., is_paused: _Optional[bool] = ...) -> None: ...

class TriggerScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TriggerScheduleResponse(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class PreviewScheduleRequest(_message.Message):
    __slots__ = ("spec", "after_ms", "count")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    spec: ScheduleSpec
    after_ms: int
    count: int
    def __init__(self, spec: _Optional[_Union[ScheduleSpec, _Mapping]] = ..., after_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PreviewScheduleResponse(_message.Message):
    __slots__ = ("tick_ms",)
    TICK_MS_FIELD_NUMBER: _ClassVar[int]
    tick_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tick_ms: _Optional[_Iterable[int]] = ...) -> None: ...
