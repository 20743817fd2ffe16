from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATUS_UNSPECIFIED: _ClassVar[JobStatus]
    QUEUED: _ClassVar[JobStatus]
    RUNNING: _ClassVar[JobStatus]
    DONE: _ClassVar[JobStatus]
    FAILED: _ClassVar[JobStatus]
    CANCELED: _ClassVar[JobStatus]

class JobOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_OUTCOME_UNSPECIFIED: _ClassVar[JobOutcome]
    JOB_OUTCOME_SUCCEEDED: _ClassVar[JobOutcome]
    JOB_OUTCOME_FAILED: _ClassVar[JobOutcome]
    JOB_OUTCOME_CANCELED: _ClassVar[JobOutcome]

class JobSort(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_SORT_UNSPECIFIED: _ClassVar[JobSort]
    CREATED_AT_DESC: _ClassVar[JobSort]
    CREATED_AT_ASC: _ClassVar[JobSort]
JOB_STATUS_UNSPECIFIED: JobStatus
QUEUED: JobStatus
RUNNING: JobStatus
DONE: JobStatus
FAILED: JobStatus
CANCELED: JobStatus
JOB_OUTCOME_UNSPECIFIED: JobOutcome
JOB_OUTCOME_SUCCEEDED: JobOutcome
JOB_OUTCOME_FAILED: JobOutcome
JOB_OUTCOME_CANCELED: JobOutcome
JOB_SORT_UNSPECIFIED: JobSort
CREATED_AT_DESC: JobSort
CREATED_AT_ASC: JobSort

class JobSpec(_message.Message):
    __slots__ = ("job_type", "work_duration_ms", "payload_size_bytes", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    WORK_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    job_type: str
    work_duration_ms: int
    payload_size_bytes: int
    labels: _containers.ScalarMap[str, str]
    def __init__(self, job_type: _Optional[str] = ..., work_duration_ms: _Optional[int] = ..., payload_size_bytes: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class JobSummary(_message.Message):
    __slots__ = ("job_id", "status", "job_type", "created_at_ms", "started_at_ms", "finished_at_ms", "cancel_requested")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus
    job_type: str
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    cancel_requested: bool
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., job_type: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., cancel_requested: _Optional[bool] = ...) -> None: ...

class PageRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class PageResponse(_message.Message):
    __slots__ = ("next_page_token",)
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    def __init__(self, next_page_token: _Optional[str] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("spec", "client_request_id")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    client_request_id: str
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., client_request_id: _Optional[str] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "initial_status", "accepted_at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    initial_status: JobStatus
    accepted_at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., initial_status: _Optional[_Union[JobStatus, str]] = ..., accepted_at_ms: _Optional[int] = ...) -> None: ...

class GetJobStatusRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobStatusResponse(_message.Message):
    __slots__ = ("job_id", "status", "cancel_requested", "created_at_ms", "started_at_ms", "finished_at_ms", "failure_reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus
    cancel_requested: bool
    created_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    failure_reason: str
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., cancel_requested: _Optional[bool] = ..., created_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., failure_reason: _Optional[str] = ...) -> None: ...

class GetJobResultRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobResultResponse(_message.Message):
    __slots__ = ("job_id", "result_ready", "terminal_status", "output_bytes", "output_summary", "runtime_ms", "checksum")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_READY_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    result_ready: bool
    terminal_status: JobStatus
    output_bytes: bytes
    output_summary: str
    runtime_ms: int
    checksum: str
    def __init__(self, job_id: _Optional[str] = ..., result_ready: _Optional[bool] = ..., terminal_status: _Optional[_Union[JobStatus, str]] = ..., output_bytes: _Optional[bytes] = ..., output_summary: _Optional[str] = ..., runtime_ms: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job_id", "accepted", "current_status", "already_terminal")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_TERMINAL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    accepted: bool
    current_status: JobStatus
    already_terminal: bool
    def __init__(self, job_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., current_status: _Optional[_Union[JobStatus, str]] = ..., already_terminal: _Optional[bool] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("status_filter", "page", "sort")
    STATUS_FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    status_filter: _containers.RepeatedScalarFieldContainer[JobStatus]
    page: PageRequest
    sort: JobSort
    def __init__(self, status_filter: _Optional[_Iterable[_Union[JobStatus, str]]] = ..., page: _Optional[_Union[PageRequest, _Mapping]] = ..., sort: _Optional[_Union[JobSort, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "page")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobSummary]
    page: PageResponse
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobSummary, _Mapping]]] = ..., page: _Optional[_Union[PageResponse, _Mapping]] = ...) -> None: ...
