"""Mapping of submits to the internal contract and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import FAILED, State
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, SIM_TYPE, BackoffRule, Extra, Template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft
from holdfast.proto import taskqueue_internal_pb2 as pb
from holdfast.proto import taskqueue_public_pb2 as public_pb
from holdfast.server.grpc.internal_messages import (
    UINT32_MAX,
    assignment_of,
    create_request,
    enqueue_again,
    job_view,
    options_message,
    report_request,
    report_row,
    spec_message,
    submission_of,
)

NAMES = st.from_regex(limits.NAME_PATTERN, fullmatch=True)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAIRS = st.dictionaries(WORDS.filter(bool), WORDS, max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))
UINT32 = st.integers(0, UINT32_MAX)
TEMPLATES = st.builds(
    Template,
    type=NAMES,
    queue=NAMES,
    priority=st.integers(limits.PRIORITY_MIN, limits.PRIORITY_MAX),
    max_attempts=st.integers(1, limits.ATTEMPTS_MAX),
    max_losses=st.integers(0, limits.LOSSES_MAX),
    timeout_ms=st.integers(0, limits.TIMEOUT_MS_MAX),
    backoff=st.builds(
        BackoffRule,
        st.sampled_from([FIXED, EXPONENTIAL, QUADRATIC]),
        st.integers(0, limits.BACKOFF_MS_MAX),
        st.integers(0, limits.BACKOFF_MS_MAX),
    ),
    simulated=st.booleans(),
)
EXTRAS = st.builds(
    Extra,
    request_id=WORDS,
    labels=PAIRS,
    headers=PAIRS,
    work_duration_ms=UINT32,
    payload_size_bytes=UINT32,
    retry_of=WORDS,
    unique_key=WORDS,
).filter(lambda extra: extra != Extra())
DRAFTS = st.builds(
    JobDraft,
    payload=st.binary(max_size=50),
    delay_ms=UINT32,
    not_before_ms=st.integers(0, 1 << 50),
    extra=st.none() | EXTRAS,
    id=WORDS,
)


@given(TEMPLATES, DRAFTS)
def test_submission_comes_back_as_it_was(template: Template, draft: JobDraft) -> None:
    """A template and a draft are unchanged after a round trip through the create request."""
    request = pb.CreateJobRequest.FromString(create_request(template, draft, 0).SerializeToString())
    assert submission_of(request) == (template, draft)


@given(TEMPLATES, DRAFTS)
def test_record_and_enqueue_request_have_the_submitted_fields(template: Template, draft: JobDraft) -> None:
    """A record shows the submitted fields, and its enqueue request has the same route."""
    record = pb.GetJobRecordResponse(
        summary=public_pb.JobSummary(job_id="j", status=public_pb.QUEUED, created_at_ms=5),
        spec=spec_message(template, draft.extra or Extra()),
        options=options_message(template, draft, 0),
        order=7,
        client_request_id=draft.extra.request_id if draft.extra else "",
    )
    view, place = job_view(record), enqueue_again(record)
    assert (view.template, view.not_before_ms) == (template, draft.not_before_ms)
    assert (view.extra or Extra()) == (draft.extra or Extra())
    assert (place.queue, place.priority, place.order) == (template.queue, template.priority, 7)
    assert place.enqueued_at_ms == 5
    assert place.route == (SIM_TYPE if template.simulated else template.type)


@given(TEMPLATES, DRAFTS)
def test_assignment_has_the_submitted_fields(template: Template, draft: JobDraft) -> None:
    """An assignment has the payload, the limits, the labels and the headers of its job."""
    extra = draft.extra or Extra()
    fetched = pb.FetchWorkResponse(
        assigned=True,
        job_id="j",
        token=9,
        attempt=2,
        spec=spec_message(template, extra),
        options=options_message(template, draft, 0),
    )
    got = assignment_of(fetched)
    assert (got.token, got.job_id, got.attempt) == (9, "j", 2)
    assert (got.type, got.queue, got.timeout_ms) == (template.type, template.queue, template.timeout_ms)
    assert (got.payload, got.simulated) == (draft.payload, template.simulated)
    assert (got.work_duration_ms, got.payload_size_bytes) == (extra.work_duration_ms, extra.payload_size_bytes)
    assert (got.labels, got.headers) == (dict(extra.labels), dict(extra.headers))


def test_request_of_the_frozen_fields_alone_is_simulated_work_with_every_default() -> None:
    """A create request with only the frozen fields means simulated work with every default."""
    request = pb.CreateJobRequest(spec=public_pb.JobSpec(job_type="any words"), client_request_id="r")
    template, draft = submission_of(request)
    assert template == Template("any words", simulated=True)
    assert draft == JobDraft(extra=Extra(request_id="r"))


def test_delay_too_long_for_its_field_is_a_time() -> None:
    """A delay that exceeds its field is sent as a due time."""
    options = options_message(Template("t"), JobDraft(delay_ms=UINT32_MAX + 1, not_before_ms=3), 1_000)
    assert (options.delay_ms, options.not_before_ms) == (0, 1_000 + UINT32_MAX + 1)


def test_number_that_exceeds_its_field_is_refused() -> None:
    """A number that exceeds its field is refused as INVALID_ARGUMENT."""
    draft = JobDraft(extra=Extra(work_duration_ms=UINT32_MAX + 1))
    with pytest.raises(InvalidArgumentError):
        create_request(Template("t"), draft, 0)


def test_unknown_kind_of_backoff_is_refused() -> None:
    """An unknown kind of back-off is refused."""
    options = pb.JobOptions(backoff=pb.RetryBackoff(kind=9))  # type: ignore[arg-type]  # an unknown kind
    with pytest.raises(InvalidArgumentError) as caught:
        submission_of(pb.CreateJobRequest(options=options))
    assert caught.value.reason == "BACKOFF_INVALID"


def test_report_maps_the_outcome_of_an_attempt() -> None:
    """A report maps a failure that is not retryable to a final one, and replaces characters outside UTF-8."""
    row = ReportRow("j", 3, FAILED, b"out", "sum\udc80", "why", 12, is_retryable=False, retry_after_ms=1 << 40)
    request = report_request("w", row)
    assert (request.worker_id, request.job_id, request.token) == ("w", "j", 3)
    assert (request.outcome, request.is_final) == (public_pb.JOB_OUTCOME_FAILED, True)
    assert (request.output_summary, request.failure_reason, request.runtime_ms) == ("sum?", "why", 12)
    assert request.retry_after_ms == UINT32_MAX


@given(
    st.builds(
        ReportRow,
        st.text("abc-123", min_size=1, max_size=20),
        st.integers(0, 1 << 60),
        st.sampled_from([State.DONE, State.FAILED, State.CANCELED]),
        st.binary(max_size=20),
        st.text(max_size=20),
        st.text(max_size=20),
        st.integers(0, (1 << 32) - 1),
        st.booleans(),
        st.integers(0, (1 << 32) - 1),
    )
)
def test_report_comes_back_as_it_was(row: ReportRow) -> None:
    """A report is unchanged after a round trip, including its retry fields."""
    assert report_row(report_request("w", row)) == row


def test_running_job_names_its_holder_and_no_other_does() -> None:
    """Only the view of a running job names a worker."""
    summary = public_pb.JobSummary(job_id="j", status=public_pb.QUEUED)
    record = pb.GetJobRecordResponse(summary=summary, worker_id="w")
    assert (job_view(record).worker, job_view(record).state) == ("", State.QUEUED)
    record.summary.status = public_pb.RUNNING
    assert job_view(record).worker == "w"
