"""The span of every attempt, from its first step until its outcome is known, wherever it runs.

Handlers of this process begin it themselves, so that it is around whatever they do; for a child the worker does, and
tells it. It ends with the outcome that is reported, also for what was written off, killed or given up.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.commands import ReportRow
from holdfast.core.failure import failure_of
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.trace_context import TraceContext
from holdfast.observe.tracing import About, Broken, Tracing, provided
from holdfast.worker.context import CURRENT, JobContext
from holdfast.worker.executors.port import Ended
from holdfast.worker.handlers import Handler, Mode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from opentelemetry.trace import Span

    from holdfast.ports import Assignment

_OUTCOMES = {int(DONE): "done", int(FAILED): "failed", int(CANCELED): "canceled"}
#: Whatever came of it is nobody's business: its lease is lost, or was handed back.
_GIVEN_UP = "given_up"


class AttemptSpans:
    """Spans of attempts that have not ended. They are begun on any thread, and end on the worker's loop."""

    def __init__(self, tracing: Tracing, worker_id: str) -> None:
        self._tracing = tracing
        self._worker_id = worker_id
        #: With the time of its beginning.
        self._open: dict[JobContext, tuple[Span, int]] = {}

    def around(self, handler: Handler) -> Handler:
        """The handler, which begins its span; that of a child stays as it is."""
        if handler.mode is Mode.PROCESS:
            return handler
        inner = handler.run

        def run(assignment: "Assignment") -> "bytes | Awaitable[bytes]":
            span = self._begin(CURRENT.get())
            if span is not None:
                # Never taken back: a task has a context of its own, and a thread gets the span of its next attempt.
                self._tracing.activate(span)
            return inner(assignment)

        return msgspec.structs.replace(handler, run=run)

    def around_all(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """All handlers, each with its spans."""
        return {name: self.around(handler) for name, handler in handlers.items()}

    def sent(self, context: JobContext) -> TraceContext | None:
        """An attempt goes to a child, which is told of the span."""
        span = self._begin(context)
        return None if span is None else self._tracing.context_of(span)

    def ended(self, ended: Iterable[Ended]) -> None:
        """Attempts are over; one that never ran has no span."""
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
        """Ends what is left."""
        while self._open:
            _, (span, _) = self._open.popitem()
            self._tracing.end(span, outcome=_GIVEN_UP)

    def _begin(self, context: JobContext) -> "Span | None":
        start_ns = time.time_ns()
        about = About(context.queue, context.type, context.job_id, context.headers)
        span = self._tracing.begin(about, attempt=context.attempt, worker_id=self._worker_id, start_ns=start_ns)
        if span is not None:
            self._open[context] = span, start_ns
        return span


def attempt_spans(worker_id: str) -> AttemptSpans | None:
    """The spans of a worker that starts now; None without a provider, and then for as long as it works."""
    provider = provided()
    return None if provider is None else AttemptSpans(Tracing(provider), worker_id)


def _broken(row: ReportRow) -> Broken:
    """The exception, if there was one; else the reason, whose first word is a name."""
    failure = failure_of(row.output)
    if failure.type:
        return Broken(failure.type, failure.message, failure.traceback)
    return Broken(row.failure_reason.partition(":")[0], row.failure_reason)
