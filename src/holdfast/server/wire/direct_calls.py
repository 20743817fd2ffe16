"""Calls that a ledger of this process answers through a callback: no task and no future per call."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from holdfast.core.model import Template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft
from holdfast.server.request_checks import checked_id
from holdfast.wire import methods
from holdfast.wire.methods import WireMethod

#: Called with the response, or with a `Refusal` or an error.
Done = Callable[[object], None]
#: Starts a call; returns a function that gives it up, or None if it cannot be given up.
Begin = Callable[[Any, Done], Callable[[], None] | None]


@runtime_checkable
class CallbackJobs(Protocol):
    """The part of `JobApi` that a ledger also offers with callbacks, on its own thread."""

    def submit_then(self, templates: Sequence[Template], drafts: Sequence[JobDraft], done: Done) -> None:
        """Submits; calls `done` with `Submitted` or a `Refusal`, once durable."""
        ...

    def settled_then(self, job_id: str, done: Done) -> Callable[[], None]:
        """Calls `done` when the job has ended, with the job and its result; returns a function that gives it up."""
        ...


def checked_submission(request: methods.Submission) -> None:
    """Refuses simulated work, which only the frozen contract submits."""
    if any(template.simulated for template in request.templates):
        raise InvalidArgumentError("simulated work is submitted over taskqueue.v1", reason="TEMPLATE_SIMULATED")


def direct_calls(jobs: object) -> dict[WireMethod[Any, Any], Begin]:
    """Returns the methods that can be answered so; none for other backends."""
    if not isinstance(jobs, CallbackJobs):
        return {}

    def submit(request: methods.Submission, done: Done) -> None:
        checked_submission(request)
        jobs.submit_then(request.templates, request.drafts, done)

    def settled(request: methods.OneJob, done: Done) -> Callable[[], None]:
        return jobs.settled_then(checked_id(request.job_id), done)

    return {methods.SUBMIT: submit, methods.SETTLED: settled}
