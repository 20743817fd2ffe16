"""Why a job is where it is, as far as its record tells: which workers are there, its gateway cannot see."""

from holdfast.core.lifecycle import RUNNING, TERMINAL
from holdfast.core.outcomes import delay_text, end_text
from holdfast.ports import JobView

Answer = tuple[str, str]


def why(job: JobView, now_ms: int, summary: str = "") -> Answer:
    """A stable reason and a sentence; the reasons are those of the other backends, as far as they can be told.

    `summary` is that of the result, once the job has ended.
    """
    if job.state in TERMINAL:
        return "ENDED", end_text(job.state, job.attempts, job.failure_reason, summary)
    if job.state == RUNNING:
        asked = "; it was asked to stop" if job.cancel_requested else ""
        return "RUNNING", f"it runs: leased by {job.worker}, attempt {job.attempts}{asked}"
    wait_ms = job.not_before_ms - now_ms
    if wait_ms > 0:
        return "DELAYED", delay_text(wait_ms, job.failures)
    sentence = f"it waits in the queue {job.template.queue!r} for a free slot of a worker that knows its type"
    return "WAITING_IN_QUEUE", sentence
