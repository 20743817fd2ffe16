"""The tracing span of every attempt, from its first step until its outcome is known.

A handler in this process begins the span itself, so that the span is active while the handler runs. For a child, the
worker begins the span and sends its context along. The span ends with the reported outcome, also for attempts that were
written off, killed or given up.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.failure import failure_of
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.trace_context import TraceContext
from holdfast.observe.tracing import SpanError, SpanSubject, Tracing, provided
from holdfast.worker.context import CURRENT, JobContext
from holdfast.worker.executors.port import Ended
from holdfast.worker.handlers import Handler, Mode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from opentelemetry.trace import Span

    from holdfast.ports import Assignment

_OUTCOMES = {int(DONE): "done", int(FAILED): "failed", int(CANCELED): "canceled"}
#: The outcome of an attempt whose lease was lost or handed back.
_GIVEN_UP = "given_up"


class AttemptSpans:
    """Spans of attempts that have not ended. They begin on any thread, and end on the worker's loop."""

    def __init__(self, tracing: Tracing, worker_id: str) -> None:
        self._tracing = tracing
        self._worker_id = worker_id
        #: Each span with its start time.
        self._open: dict[JobContext, tuple[Span, int]] = {}

    def around(self, handler: Handler) -> Handler:
        """Wraps a handler so that it begins its span; a handler for children is returned unchanged."""
        if handler.mode is Mode.PROCESS:
            return handler
        inner = handler.run

        def run(assignment: "Assignment") -> "bytes | Awaitable[bytes]":
            span = self._begin(CURRENT.get())
            if span is not None:
                # Never deactivated: a task has its own context, and a thread activates the span of its next attempt.
                self._tracing.activate(span)
            return inner(assignment)

        return msgspec.structs.replace(handler, run=run)

    def around_all(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Wraps all handlers."""
        return {name: self.around(handler) for name, handler in handlers.items()}

    def sent(self, context: JobContext) -> TraceContext | None:
        """Begins the span of an attempt that is sent to a child, and returns the span's context."""
        span = self._begin(context)
        return None if span is None else self._tracing.context_of(span)

    def ended(self, ended: Iterable[Ended]) -> None:
        """Ends the spans of attempts that have ended; an attempt that never ran has no span."""
        for context, row in ended:
            begun = self._open.pop(context, None)
            if begun is None:
                continue
            span, start_ns = begun
            ran_s = context.ended_s - context.started_s
            self._tracing.end(
                span,
                outcome=_GIVEN_UP if context.is_revoked else _OUTCOMES[row.state],
                broken=_broken(row) if row.state == FAILED else None,
                end_ns=start_ns + int(ran_s * 1e9) if ran_s > 0 else time.time_ns(),
            )

    def close(self) -> None:
        """Ends the remaining spans."""
        while self._open:
            _, (span, _) = self._open.popitem()
            self._tracing.end(span, outcome=_GIVEN_UP)

    def _begin(self, context: JobContext) -> "Span | None":
        start_ns = time.time_ns()
        about = SpanSubject(context.queue, context.type, context.job_id, context.headers)
        span = self._tracing.begin(about, attempt=context.attempt, worker_id=self._worker_id, start_ns=start_ns)
        if span is not None:
            self._open[context] = span, start_ns
        return span


def attempt_spans(worker_id: str) -> AttemptSpans | None:
    """Returns the spans of a worker; None if there is no tracing provider when the worker starts."""
    provider = provided()
    return None if provider is None else AttemptSpans(Tracing(provider), worker_id)


def _broken(row: ReportRow) -> SpanError:
    """The exception of a failed attempt; without one, the reason, which begins with a name."""
    failure = failure_of(row.output)
    if failure.type:
        return SpanError(failure.type, failure.message, failure.traceback)
    return SpanError(row.failure_reason.partition(":")[0], row.failure_reason)
