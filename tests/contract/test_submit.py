"""SubmitJob: new jobs, repeated request ids, and refused specs."""

import uuid
from collections.abc import Callable

import grpc
import pytest

from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.fleet import Fleet
from tests.e2e.grpc_client import Wire, refusal


def test_submit_answers_with_an_id_queued_and_the_time_of_acceptance(wire: Wire) -> None:
    """An accepted job has a unique id, is QUEUED, and has the time of its acceptance as its creation time."""
    response = wire.submit(key="sj1")
    job = wire.status(response.job_id)
    assert response.initial_status == job.status == public.QUEUED
    assert response.accepted_at_ms == job.created_at_ms > 0


def test_job_ids_are_random_uuids(wire: Wire) -> None:
    """Every job id is a UUID of version 4 in its canonical form."""
    for job_id in {wire.new() for _ in range(20)}:
        parsed = uuid.UUID(job_id)
        assert (str(parsed), parsed.version) == (job_id, 4)


def test_same_key_and_spec_find_the_first_job(wire: Wire) -> None:
    """A repeated submit with the same request id returns the first job's id and creates no job."""
    before = len(wire.all_jobs())
    ids = {wire.new(key="again", ms=5, size=6, labels={"a": "1"}) for _ in range(3)}
    assert len(ids) == 1
    assert len(wire.all_jobs()) == before + 1


@pytest.mark.parametrize(
    "changed",
    [
        {"job_type": "other"},
        {"ms": 6},
        {"size": 7},
        {"labels": {"a": "2"}},
        {"labels": {"a": "1", "b": "1"}},
        {"labels": {}},
    ],
    ids=str,
)
def test_same_key_with_another_spec_is_refused(wire: Wire, changed: dict[str, object]) -> None:
    """A request id that is reused with any other field is FAILED_PRECONDITION and creates no job."""
    spec = {"job_type": "first", "ms": 5, "size": 6, "labels": {"a": "1"}}
    wire.new(key="changed", **spec)
    before = len(wire.all_jobs())
    refused = refusal(lambda: wire.new(key="changed", **(spec | changed)))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "REQUEST_ID_REUSED")
    assert len(wire.all_jobs()) == before


def test_order_of_labels_makes_no_difference(wire: Wire) -> None:
    """A submit with the same labels in another order on the wire has the same spec."""
    first = wire.new(key="labels", labels={"a": "1", "b": "2", "c": "3"})
    entries = [_label("c", "3"), _label("a", "1"), _label("b", "2")]
    spec = b"\x0a\x03sim" + b"".join(entries)
    body = b"\x0a" + bytes([len(spec)]) + spec + b"\x12\x06labels"
    answer = wire.raw("/taskqueue.v1.TaskQueuePublicService/SubmitJob", body)
    assert public.SubmitJobResponse.FromString(answer).job_id == first


def _label(key: str, value: str) -> bytes:
    entry = b"\x0a" + bytes([len(key)]) + key.encode() + b"\x12" + bytes([len(value)]) + value.encode()
    return b"\x22" + bytes([len(entry)]) + entry


def test_without_a_key_every_submit_is_a_new_job(wire: Wire) -> None:
    """Equal submits without a request id each create a job."""
    assert len({wire.new(ms=1) for _ in range(3)}) == 3


def test_a_key_finds_its_job_after_the_job_ended(wire: Wire) -> None:
    """The server remembers a request id as long as its job, also after the job has ended."""
    job_id = wire.new(key="ended")
    wire.cancel(job_id)
    again = wire.submit(key="ended")
    assert (again.job_id, again.initial_status) == (job_id, public.QUEUED)


def test_limits_themselves_are_accepted(wire: Wire) -> None:
    """The longest type, key, label name and value, and the largest number of labels, are accepted."""
    labels = {f"{number:03}".ljust(128, "k"): "v" * 1_024 for number in range(64)}
    job_id = wire.new(job_type="t" * 128, key="k" * 256, labels=labels)
    assert wire.status(job_id).status == public.QUEUED


@pytest.mark.parametrize(
    ("reason", "spec"),
    [
        ("JOB_TYPE_EMPTY", {"job_type": ""}),
        ("JOB_TYPE_TOO_LONG", {"job_type": "t" * 129}),
        ("JOB_TYPE_INVALID", {"job_type": "two\nlines"}),
        ("REQUEST_ID_TOO_LONG", {"key": "k" * 257}),
        ("REQUEST_ID_INVALID", {"key": "a\0b"}),
        ("LABELS_TOO_MANY", {"labels": {str(n): "" for n in range(65)}}),
        ("LABEL_KEY_INVALID", {"labels": {"": "x"}}),
        ("LABEL_KEY_INVALID", {"labels": {"k" * 129: "x"}}),
        ("LABEL_KEY_INVALID", {"labels": {"a\rb": "x"}}),
        ("LABEL_VALUE_TOO_LONG", {"labels": {"k": "v" * 1_025}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_submit_is_an_invalid_argument(wire: Wire, reason: str, spec: dict[str, object]) -> None:
    """A malformed spec is INVALID_ARGUMENT with its own reason and creates no job."""
    before = len(wire.all_jobs())
    refused = refusal(lambda: wire.new(**spec))
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert len(wire.all_jobs()) == before


def test_request_without_a_spec_is_an_invalid_argument(wire: Wire) -> None:
    """A request without a spec is INVALID_ARGUMENT."""
    refused = refusal(lambda: wire.raw("/taskqueue.v1.TaskQueuePublicService/SubmitJob", b""))
    assert refused.code == grpc.StatusCode.INVALID_ARGUMENT


def keyed_batch(keys: list[str]) -> own.SubmitJobsRequest:
    jobs = [own.NewJob(request_id=key) for key in keys]
    return own.SubmitJobsRequest(templates=[own.JobTemplate(type="echo")], jobs=jobs)


def in_thousands(submit: Callable[[list[str]], object], count: int) -> None:
    for start in range(0, count, 1_000):
        submit([str(number) for number in range(start, min(start + 1_000, count))])


def test_memory_remembers_ten_thousand_keys_and_forgets_the_oldest(fleet: Fleet) -> None:
    """In memory, the server forgets the oldest of 10,001 request ids and keeps the second oldest."""
    _, wire = fleet.server(data="memory://")
    first = list(wire.batch(keyed_batch(["0", "1"])).job_ids)
    in_thousands(lambda keys: wire.batch(keyed_batch(keys)), 10_000)
    assert list(wire.batch(keyed_batch(["0", "1"])).job_ids) == first
    wire.batch(keyed_batch(["10000"]))
    again = wire.batch(keyed_batch(["1", "0"])).job_ids
    assert again[0] == first[1]
    assert again[1] != first[0]


def test_disk_remembers_more_than_ten_thousand_keys(fleet: Fleet) -> None:
    """With storage on disk, the server remembers a request id as long as its job, also beyond 10,000 of them."""
    _, wire = fleet.server(data="many-keys")
    first = wire.batch(keyed_batch(["0"])).job_ids
    in_thousands(lambda keys: wire.batch(keyed_batch(keys)), 12_000)
    assert wire.batch(keyed_batch(["0"])).job_ids == first
