"""Invalid names and oversized text for every string field of a contract."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public

#: Invalid as a name, a key or an id.
NAMES = ("a\0b", "a\r\nb", "a\u202eb", "n" * 2_000, "n" * 3_000_000)
#: The id of a job that does not exist.
NOBODY = "0190a5d2-0000-7000-8000-000000000000"
#: Free-text fields, where any text is valid; the server truncates it.
FREE = frozenset({"actor", "reason", "failure_reason", "output_summary", "spec.labels.value", "options.headers.value"})
#: A valid request per method, so that validation reaches the names; no request refers to an existing job.
_REQUESTS: dict[str, Message] = {
    "CreateJob": pb.CreateJobRequest(spec=public.JobSpec(job_type="sim"), options=pb.JobOptions(simulated=True)),
    "TransitionJobStatus": pb.TransitionJobStatusRequest(
        job_id=NOBODY, expected_from_status=public.RUNNING, to_status=public.DONE
    ),
    "DeleteJobIfStatus": pb.DeleteJobIfStatusRequest(expected_status=public.QUEUED),
    "SetCancelRequested": pb.SetCancelRequestedRequest(job_id=NOBODY, cancel_requested=True),
    "EnqueueJob": pb.EnqueueJobRequest(job_id=NOBODY),
    "DequeueJob": pb.DequeueJobRequest(worker_id="w", wanted=pb.Wanted(routes=["nobody-runs-this"])),
    "StoreResult": pb.StoreResultRequest(job_id=NOBODY, terminal_status=public.DONE),
    "WorkerHeartbeat": pb.WorkerHeartbeatRequest(worker_id="w"),
    "FetchWork": pb.FetchWorkRequest(worker_id="w", wanted=pb.Wanted(routes=["nobody-runs-this"])),
    "ReportWorkOutcome": pb.ReportWorkOutcomeRequest(
        worker_id="w", job_id=NOBODY, outcome=public.JOB_OUTCOME_SUCCEEDED
    ),
}


def text_fields(message: Descriptor, *before: str) -> Iterator[tuple[str, ...]]:
    """Yields the path to every string field, through messages and maps."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (*before, field.name)
        elif field.message_type is not None:
            yield from text_fields(field.message_type, *before, field.name)


def with_text(method: str, kind: type[Message], way: tuple[str, ...], text: str) -> bytes:
    """Returns a request that is valid except for this text in this field."""
    request = kind()
    if method in _REQUESTS:
        request.CopyFrom(_REQUESTS[method])
    _put(request, way, text)
    return request.SerializeToString()


def _put(message: Any, way: tuple[str, ...], text: str) -> None:  # noqa: ANN401 - any kind of message
    name, *rest = way
    value = getattr(message, name)
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        pair = (text, "v") if rest == ["key"] else ("k", text)
        value[pair[0]] = pair[1]
    elif rest:
        _put(value.add() if field.is_repeated else value, tuple(rest), text)
    elif field.is_repeated:
        value.append(text)
    else:
        setattr(message, name, text)
