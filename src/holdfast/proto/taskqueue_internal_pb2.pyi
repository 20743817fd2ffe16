from . import taskqueue_public_pb2 as _taskqueue_public_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Spends(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPENDS_NOTHING: _ClassVar[Spends]
    SPENDS_FAILURE: _ClassVar[Spends]
    SPENDS_LOSS: _ClassVar[Spends]

class BackoffKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKOFF_KIND_UNSPECIFIED: _ClassVar[BackoffKind]
    BACKOFF_KIND_FIXED: _ClassVar[BackoffKind]
    BACKOFF_KIND_EXPONENTIAL: _ClassVar[BackoffKind]
    BACKOFF_KIND_QUADRATIC: _ClassVar[BackoffKind]
SPENDS_NOTHING: Spends
SPENDS_FAILURE: Spends
SPENDS_LOSS: Spends
BACKOFF_KIND_UNSPECIFIED: BackoffKind
BACKOFF_KIND_FIXED: BackoffKind
BACKOFF_KIND_EXPONENTIAL: BackoffKind
BACKOFF_KIND_QUADRATIC: BackoffKind

class JobOptions(_message.Message):
    __slots__ = ("queue", "priority", "not_before_ms", "max_attempts", "max_losses", "timeout_ms", "payload", "headers", "backoff", "retry_of", "unique_key", "job_id", "simulated", "delay_ms")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_LOSSES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    priority: int
    not_before_ms: int
    max_attempts: int
    max_losses: int
    timeout_ms: int
    payload: bytes
    headers: _containers.ScalarMap[str, str]
    backoff: RetryBackoff
    retry_of: str
    unique_key: str
    job_id: str
    simulated: bool
    delay_ms: int
    def __init__(self, queue: _Optional[str] = ..., priority: _Optional[int] = ..., not_before_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_losses: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., payload: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., backoff: _Optional[_Union[RetryBackoff, _Mapping]] = ..., retry_of: _Optional[str] = ..., unique_key: _Optional[str] = ..., job_id: _Optional[str] = ..., simulated: _Optional[bool] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("routes", "queues")
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, routes: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ...) -> None: ...

class JobSearch(_message.Message):
    __slots__ = ("queue", "type", "labels", "created_from_ms", "created_before_ms", "cursor")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    queue: str
    type: str
    labels: _containers.ScalarMap[str, str]
    created_from_ms: int
    created_before_ms: int
    cursor: str
    def __init__(self, queue: _Optional[str] = ..., type: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., created_from_ms: _Optional[int] = ..., created_before_ms: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class RetryBackoff(_message.Message):
    __slots__ = ("kind", "base_ms", "max_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    kind: BackoffKind
    base_ms: int
    max_ms: int
    def __init__(self, kind: _Optional[_Union[BackoffKind, str]] = ..., base_ms: _Optional[int] = ..., max_ms: _Optional[int] = ...) -> None: ...

class RunningJob(_message.Message):
    __slots__ = ("job_id", "token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class RunningJobs(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[RunningJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("spec", "client_request_id", "options")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    spec: _taskqueue_public_pb2.JobSpec
    client_request_id: str
    options: JobOptions
    def __init__(self, spec: _Optional[_Union[_taskqueue_public_pb2.JobSpec, _Mapping]] = ..., client_request_id: _Optional[str] = ..., options: _Optional[_Union[JobOptions, _Mapping]] = ...) -> None: ...

class CreateJobResponse(_message.Message):
    __slots__ = ("job_id", "status", "existing", "created_at_ms", "order")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: _taskqueue_public_pb2.JobStatus
    existing: bool
    created_at_ms: int
    order: int
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., existing: _Optional[bool] = ..., created_at_ms: _Optional[int] = ..., order: _Optional[int] = ...) -> None: ...

class DeleteJobIfStatusRequest(_message.Message):
    __slots__ = ("job_id", "expected_status")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STATUS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    expected_status: _taskqueue_public_pb2.JobStatus
    def __init__(self, job_id: _Optional[str] = ..., expected_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ...) -> None: ...

class DeleteJobIfStatusResponse(_message.Message):
    __slots__ = ("deleted", "current_status")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    current_status: _taskqueue_public_pb2.JobStatus
    def __init__(self, deleted: _Optional[bool] = ..., current_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ...) -> None: ...

class GetJobRecordRequest(_message.Message):
    __slots__ = ("job_id", "without_payload")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    without_payload: bool
    def __init__(self, job_id: _Optional[str] = ..., without_payload: _Optional[bool] = ...) -> None: ...

class GetJobRecordResponse(_message.Message):
    __slots__ = ("summary", "failure_reason", "spec", "options", "token", "worker_id", "attempts", "failures", "losses", "order", "cancel_reason", "client_request_id", "grants", "now_ms")
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REASON_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    summary: _taskqueue_public_pb2.JobSummary
    failure_reason: str
    spec: _taskqueue_public_pb2.JobSpec
    options: JobOptions
    token: int
    worker_id: str
    attempts: int
    failures: int
    losses: int
    order: int
    cancel_reason: str
    client_request_id: str
    grants: int
    now_ms: int
    def __init__(self, summary: _Optional[_Union[_taskqueue_public_pb2.JobSummary, _Mapping]] = ..., failure_reason: _Optional[str] = ..., spec: _Optional[_Union[_taskqueue_public_pb2.JobSpec, _Mapping]] = ..., options: _Optional[_Union[JobOptions, _Mapping]] = ..., token: _Optional[int] = ..., worker_id: _Optional[str] = ..., attempts: _Optional[int] = ..., failures: _Optional[int] = ..., losses: _Optional[int] = ..., order: _Optional[int] = ..., cancel_reason: _Optional[str] = ..., client_request_id: _Optional[str] = ..., grants: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ListJobRecordsRequest(_message.Message):
    __slots__ = ("status_filter", "page", "sort", "search")
    STATUS_FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    status_filter: _containers.RepeatedScalarFieldContainer[_taskqueue_public_pb2.JobStatus]
    page: _taskqueue_public_pb2.PageRequest
    sort: _taskqueue_public_pb2.JobSort
    search: JobSearch
    def __init__(self, status_filter: _Optional[_Iterable[_Union[_taskqueue_public_pb2.JobStatus, str]]] = ..., page: _Optional[_Union[_taskqueue_public_pb2.PageRequest, _Mapping]] = ..., sort: _Optional[_Union[_taskqueue_public_pb2.JobSort, str]] = ..., search: _Optional[_Union[JobSearch, _Mapping]] = ...) -> None: ...

class ListJobRecordsResponse(_message.Message):
    __slots__ = ("jobs", "page", "records", "next_cursor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[_taskqueue_public_pb2.JobSummary]
    page: _taskqueue_public_pb2.PageResponse
    records: _containers.RepeatedCompositeFieldContainer[GetJobRecordResponse]
    next_cursor: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[_taskqueue_public_pb2.JobSummary, _Mapping]]] = ..., page: _Optional[_Union[_taskqueue_public_pb2.PageResponse, _Mapping]] = ..., records: _Optional[_Iterable[_Union[GetJobRecordResponse, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class TransitionJobStatusRequest(_message.Message):
    __slots__ = ("job_id", "expected_from_status", "to_status", "actor", "reason", "token", "worker_id", "not_before_ms", "spends")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FROM_STATUS_FIELD_NUMBER: _ClassVar[int]
    TO_STATUS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    SPENDS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    expected_from_status: _taskqueue_public_pb2.JobStatus
    to_status: _taskqueue_public_pb2.JobStatus
    actor: str
    reason: str
    token: int
    worker_id: str
    not_before_ms: int
    spends: Spends
    def __init__(self, job_id: _Optional[str] = ..., expected_from_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., to_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ..., token: _Optional[int] = ..., worker_id: _Optional[str] = ..., not_before_ms: _Optional[int] = ..., spends: _Optional[_Union[Spends, str]] = ...) -> None: ...

class TransitionJobStatusResponse(_message.Message):
    __slots__ = ("applied", "current_status", "token")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    current_status: _taskqueue_public_pb2.JobStatus
    token: int
    def __init__(self, applied: _Optional[bool] = ..., current_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., token: _Optional[int] = ...) -> None: ...

class SetCancelRequestedRequest(_message.Message):
    __slots__ = ("job_id", "cancel_requested", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    cancel_requested: bool
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., cancel_requested: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class SetCancelRequestedResponse(_message.Message):
    __slots__ = ("applied", "current_status")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    current_status: _taskqueue_public_pb2.JobStatus
    def __init__(self, applied: _Optional[bool] = ..., current_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ...) -> None: ...

class EnqueueJobRequest(_message.Message):
    __slots__ = ("job_id", "enqueued_at_ms", "queue", "priority", "not_before_ms", "route", "order", "now_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    enqueued_at_ms: int
    queue: str
    priority: int
    not_before_ms: int
    route: str
    order: int
    now_ms: int
    def __init__(self, job_id: _Optional[str] = ..., enqueued_at_ms: _Optional[int] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., not_before_ms: _Optional[int] = ..., route: _Optional[str] = ..., order: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class EnqueueJobResponse(_message.Message):
    __slots__ = ("accepted", "existing")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    existing: bool
    def __init__(self, accepted: _Optional[bool] = ..., existing: _Optional[bool] = ...) -> None: ...

class DequeueJobRequest(_message.Message):
    __slots__ = ("worker_id", "wanted")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    wanted: Wanted
    def __init__(self, worker_id: _Optional[str] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ...) -> None: ...

class DequeueJobResponse(_message.Message):
    __slots__ = ("found", "job_id")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    found: bool
    job_id: str
    def __init__(self, found: _Optional[bool] = ..., job_id: _Optional[str] = ...) -> None: ...

class RemoveJobIfPresentRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class RemoveJobIfPresentResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: _Optional[bool] = ...) -> None: ...

class WorkerHeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "heartbeat_at_ms", "capacity_hint", "running", "released", "is_leaving", "is_arriving", "incarnation")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_HINT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    IS_ARRIVING_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    heartbeat_at_ms: int
    capacity_hint: int
    running: RunningJobs
    released: _containers.RepeatedCompositeFieldContainer[RunningJob]
    is_leaving: bool
    is_arriving: bool
    incarnation: int
    def __init__(self, worker_id: _Optional[str] = ..., heartbeat_at_ms: _Optional[int] = ..., capacity_hint: _Optional[int] = ..., running: _Optional[_Union[RunningJobs, _Mapping]] = ..., released: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ..., is_leaving: _Optional[bool] = ..., is_arriving: _Optional[bool] = ..., incarnation: _Optional[int] = ...) -> None: ...

class WorkerHeartbeatResponse(_message.Message):
    __slots__ = ("accepted", "next_heartbeat_in_ms", "cancel", "revoked", "lease_ms")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_HEARTBEAT_IN_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    next_heartbeat_in_ms: int
    cancel: _containers.RepeatedScalarFieldContainer[str]
    revoked: _containers.RepeatedCompositeFieldContainer[RunningJob]
    lease_ms: int
    def __init__(self, accepted: _Optional[bool] = ..., next_heartbeat_in_ms: _Optional[int] = ..., cancel: _Optional[_Iterable[str]] = ..., revoked: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class FetchWorkRequest(_message.Message):
    __slots__ = ("worker_id", "wanted")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    wanted: Wanted
    def __init__(self, worker_id: _Optional[str] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ...) -> None: ...

class FetchWorkResponse(_message.Message):
    __slots__ = ("assigned", "job_id", "spec", "retry_after_ms", "token", "options", "attempt")
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    assigned: bool
    job_id: str
    spec: _taskqueue_public_pb2.JobSpec
    retry_after_ms: int
    token: int
    options: JobOptions
    attempt: int
    def __init__(self, assigned: _Optional[bool] = ..., job_id: _Optional[str] = ..., spec: _Optional[_Union[_taskqueue_public_pb2.JobSpec, _Mapping]] = ..., retry_after_ms: _Optional[int] = ..., token: _Optional[int] = ..., options: _Optional[_Union[JobOptions, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class ReportWorkOutcomeRequest(_message.Message):
    __slots__ = ("worker_id", "job_id", "outcome", "runtime_ms", "failure_reason", "output_summary", "output_bytes", "checksum", "token", "is_final", "retry_after_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    job_id: str
    outcome: _taskqueue_public_pb2.JobOutcome
    runtime_ms: int
    failure_reason: str
    output_summary: str
    output_bytes: bytes
    checksum: str
    token: int
    is_final: bool
    retry_after_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., job_id: _Optional[str] = ..., outcome: _Optional[_Union[_taskqueue_public_pb2.JobOutcome, str]] = ..., runtime_ms: _Optional[int] = ..., failure_reason: _Optional[str] = ..., output_summary: _Optional[str] = ..., output_bytes: _Optional[bytes] = ..., checksum: _Optional[str] = ..., token: _Optional[int] = ..., is_final: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ReportWorkOutcomeResponse(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class StoreResultRequest(_message.Message):
    __slots__ = ("job_id", "terminal_status", "runtime_ms", "output_summary", "output_bytes", "checksum")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    terminal_status: _taskqueue_public_pb2.JobStatus
    runtime_ms: int
    output_summary: str
    output_bytes: bytes
    checksum: str
    def __init__(self, job_id: _Optional[str] = ..., terminal_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., runtime_ms: _Optional[int] = ..., output_summary: _Optional[str] = ..., output_bytes: _Optional[bytes] = ..., checksum: _Optional[str] = ...) -> None: ...

class StoreResultResponse(_message.Message):
    __slots__ = ("stored", "already_exists", "current_terminal_status")
    STORED_FIELD_NUMBER: _ClassVar[int]
    ALREADY_EXISTS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_TERMINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    stored: bool
    already_exists: bool
    current_terminal_status: _taskqueue_public_pb2.JobStatus
    def __init__(self, stored: _Optional[bool] = ..., already_exists: _Optional[bool] = ..., current_terminal_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ...) -> None: ...

class GetResultRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetResultResponse(_message.Message):
    __slots__ = ("found", "job_id", "terminal_status", "runtime_ms", "output_summary", "output_bytes", "checksum")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    found: bool
    job_id: str
    terminal_status: _taskqueue_public_pb2.JobStatus
    runtime_ms: int
    output_summary: str
    output_bytes: bytes
    checksum: str
    def __init__(self, found: _Optional[bool] = ..., job_id: _Optional[str] = ..., terminal_status: _Optional[_Union[_taskqueue_public_pb2.JobStatus, str]] = ..., runtime_ms: _Optional[int] = ..., output_summary: _Optional[str] = ..., output_bytes: _Optional[bytes] = ..., checksum: _Optional[str] = ...) -> None: ...
