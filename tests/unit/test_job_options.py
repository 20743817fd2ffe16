"""No conversion drops an option of a job: over the wire, gRPC, HTTP, the internal contract and the output of the CLI.

After you have added a field to `Template` or `Extra` in `core/model.py`, add a value to `TEMPLATE` or `EXTRA` here. The
tests then fail at each conversion that drops the field. A test whose conversion leaves a field out on purpose names it.
"""

from typing import Any

import msgspec
import pytest

from holdfast.cli.views import job_json
from holdfast.core.lifecycle import State
from holdfast.core.model import FIXED, BackoffRule, Extra, Template
from holdfast.core.validation import check_extra, check_template
from holdfast.ledger.manual_retry import repeated
from holdfast.ports import JobDraft, JobView, ScheduleSpec
from holdfast.proto import holdfast_pb2 as pb
from holdfast.proto import taskqueue_internal_pb2 as internal_pb
from holdfast.server.grpc import internal_messages, requests, responses
from holdfast.server.http import job_bodies, schemas
from holdfast.wire import methods
from holdfast.wire.messages import encode
from tests.grpc_v1 import views as client_views

#: A template and an extra in which no field has its default.
TEMPLATE = Template("resize", "images", 7, 3, 2, 9_000, BackoffRule(FIXED, 50, 60), simulated=True)
EXTRA = Extra(
    request_id="request-1",
    labels=(("team", "night"),),
    headers=(("tenant", "a"),),
    work_duration_ms=5,
    payload_size_bytes=6,
    retry_of="an-earlier-job",
    unique_key="only-one",
)
DEFAULTS = (Template(""), Extra())
VIEW = JobView("id", TEMPLATE, State.QUEUED, 0, 0, 0, 0, False, "", 0, EXTRA)
#: The body of the same job over HTTP.
BODY = {
    "type": "resize",
    "queue": "images",
    "priority": 7,
    "max_attempts": 3,
    "max_losses": 2,
    "timeout_s": 9,
    "backoff": {"kind": "fixed", "base_s": 0.05, "max_s": 0.06},
    "labels": {"team": "night"},
    "unique_key": "only-one",
    "request_id": "request-1",
    "headers": {"tenant": "a"},
}
#: The fields of `JobBody` that are no options: the arguments, and the due time, which is a field of `JobDraft`.
OF_THE_DRAFT = frozenset({"payload", "delay_s", "not_before"})
#: Fields of simulated work, which is submitted over the frozen contract `taskqueue.v1` alone.
SIMULATED = frozenset({"simulated", "work_duration_ms", "payload_size_bytes"})
#: Option -> its name in JSON, where that is another one.
IN_HTTP = {"timeout_ms": "timeout_s"}

Options = tuple[Template, Extra | None]


def without(*names: str) -> Options:
    """The template and the extra with the default in these fields."""
    changes = [{name: getattr(default, name) for name in names if hasattr(default, name)} for default in DEFAULTS]
    return msgspec.structs.replace(TEMPLATE, **changes[0]), msgspec.structs.replace(EXTRA, **changes[1])


def submitted_over_grpc(template: Template, extra: Extra) -> Options:
    request = pb.SubmitJobsRequest(templates=[client_views.template_message(template)])
    client_views.add_draft(request, JobDraft(extra=extra))
    received = pb.SubmitJobsRequest.FromString(request.SerializeToString())
    return requests.template_of(received.templates[0]), requests.draft_of(received.jobs[0]).extra


def names_missing_in(shown: dict[str, Any], named: dict[str, str]) -> set[str]:
    """The options whose name is not among the keys."""
    options = (*Template.__struct_fields__, *Extra.__struct_fields__)
    return {name for name in options if named.get(name, name) not in shown}


@pytest.mark.parametrize(
    ("value", "default"), [(TEMPLATE, DEFAULTS[0]), (EXTRA, DEFAULTS[1])], ids=["template", "extra"]
)
def test_every_option_has_a_value_here(value: Template | Extra, default: Template | Extra) -> None:
    """The values of this module set every field of the model, so that a dropped field is noticed."""
    unset = [name for name in value.__struct_fields__ if getattr(value, name) == getattr(default, name)]
    assert unset == [], "add a value of these fields to TEMPLATE or EXTRA"


def test_submit_over_the_wire_keeps_every_option() -> None:
    """The server receives the template and the draft that a client has sent, as the same values."""
    draft = JobDraft(0, b"payload", 3, 4, EXTRA, "id")
    submission = methods.Submission([TEMPLATE], [draft])
    assert methods.SUBMIT.decode_request(encode(submission)) == submission


def test_job_over_the_wire_has_every_option() -> None:
    """A client reads a job as the server has it, as the same value."""
    assert methods.GET.decode_response(encode(VIEW)) == VIEW


def test_schedule_over_the_wire_keeps_every_option() -> None:
    """The server receives the schedule that a client has sent, with the options of its jobs."""
    spec = ScheduleSpec("nightly", TEMPLATE, b"payload", "0 3 * * *", labels=EXTRA.labels)
    assert methods.SET_SCHEDULE.decode_request(encode(methods.ScheduleChange(spec))) == methods.ScheduleChange(spec)


def test_submit_over_grpc_keeps_every_option() -> None:
    """The server receives the template and the extra that a client has sent."""
    where = "an option is dropped in server/grpc/requests.py, or in the client of tests/grpc_v1/views.py"
    assert submitted_over_grpc(TEMPLATE, EXTRA) == without(*SIMULATED), where


def test_job_over_grpc_has_every_option() -> None:
    """A client reads the options of a job as the server has them."""
    view = client_views.job_view(pb.Job.FromString(responses.job_message(VIEW).SerializeToString()))
    where = "an option is dropped in server/grpc/responses.py, or in the client of tests/grpc_v1/views.py"
    assert (view.template, view.extra) == without(*SIMULATED - {"simulated"}), where


@pytest.mark.parametrize("name", sorted({*Extra.__struct_fields__} - SIMULATED))
def test_option_of_few_jobs_is_kept_without_the_others(name: str) -> None:
    """An option is kept when it is the only field of the extra that a job has."""
    extra = msgspec.structs.replace(Extra(), **{name: getattr(EXTRA, name)})
    assert submitted_over_grpc(TEMPLATE, extra)[1] == extra
    message = responses.job_message(msgspec.structs.replace(VIEW, extra=extra))
    assert client_views.job_view(message).extra == extra


def test_internal_contract_keeps_every_option() -> None:
    """The services of the microservices topology exchange every option."""
    request = internal_messages.create_request(TEMPLATE, JobDraft(extra=EXTRA), 0)
    received = internal_pb.CreateJobRequest.FromString(request.SerializeToString())
    template, draft = internal_messages.submission_of(received)
    assert (template, draft.extra) == (TEMPLATE, EXTRA), "an option is dropped in server/grpc/internal_messages.py"


def test_submit_over_http_keeps_every_option() -> None:
    """The body of a submit has every option but `retry_of`, which the server sets."""
    assert BODY.keys() == set(schemas.JobBody.__struct_fields__) - OF_THE_DRAFT
    body = msgspec.convert(BODY, schemas.JobBody)
    received = job_bodies.template_of(body), job_bodies.draft_of(body, 0, "").extra
    assert received == without(*SIMULATED, "retry_of"), "an option is dropped in server/http/job_bodies.py"


def test_job_over_http_has_every_option() -> None:
    """HTTP shows every option of a job but its back-off."""
    missing = names_missing_in(schemas.job_fields(VIEW), IN_HTTP)
    assert missing == SIMULATED | {"backoff"}, "an option is not shown in server/http/schemas.py"


def test_json_of_the_cli_has_every_option() -> None:
    """`holdfast job get --json` shows every option of a job but its back-off and its budget of losses."""
    missing = names_missing_in(job_json(VIEW), {})
    assert missing == SIMULATED | {"backoff", "max_losses"}, "an option is not shown in cli/views.py"


def test_manual_retry_copies_every_option_but_the_keys() -> None:
    """A manual retry copies the extra of the first job, except its keys."""
    again = repeated("first", b"", EXTRA, "request-2").extra
    expected = msgspec.structs.replace(EXTRA, request_id="request-2", retry_of="first", unique_key="")
    assert again == expected, "an option is dropped in ledger/manual_retry.py"


@pytest.mark.parametrize("name", [name for name in Extra.__struct_fields__ if type(getattr(EXTRA, name)) is not tuple])
def test_value_of_an_extra_is_limited(name: str) -> None:
    """A text that is too long, and a number below zero, are refused before they reach the journal."""
    value = "x" * 100_000 if type(getattr(EXTRA, name)) is str else -1
    refusal = check_extra(msgspec.structs.replace(Extra(), **{name: value}))
    assert refusal is not None, "an option is not checked in core/validation.py"


@pytest.mark.parametrize("name", [name for name in Template.__struct_fields__ if name not in {"backoff", "simulated"}])
def test_value_of_a_template_is_limited(name: str) -> None:
    """A text that is too long, and a number below zero, are refused before they reach the journal."""
    value = "x" * 100_000 if type(getattr(TEMPLATE, name)) is str else -1
    template = msgspec.structs.replace(TEMPLATE, simulated=False, **{name: value})
    assert check_template(template) is not None, "an option is not checked in core/validation.py"
