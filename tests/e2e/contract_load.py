"""Clients of the frozen contract that write down what they were answered, and what follows from it.

A call that is answered with UNAVAILABLE, or not in time, is unknown: it may have happened or not. Each job has a type
of its own, so that a listing tells which attempt it came from.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.waiting import pause
from tests.e2e.wire import TERMINAL, Wire

T = TypeVar("T")

FAILS = "BY_REQUEST"
#: Of jobs whose workers were killed too often; the second if that was written down, and then found again.
_LOST_REASONS = ("WORKER_LOST", "an end that was stored before")
_UNKNOWN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_TIMEOUT_S = 5.0
#: A client that waits for so many jobs submits no more.
_OPEN_MAX = 12


@dataclass(frozen=True)
class Plan:
    """What one job is to do; without a key its submit cannot be repeated."""

    name: str
    ms: int
    size: int
    fails: bool
    is_keyed: bool
    may_be_canceled: bool


@dataclass
class Story:
    """What one client has heard of one job, in order."""

    plan: Plan
    ids: set[str] = field(default_factory=set)
    #: Terminal answers that differ; more than one, and an end was changed.
    ends: list[public.GetJobStatusResponse] = field(default_factory=list)
    results: list[public.GetJobResultResponse] = field(default_factory=list)
    is_cancel_tried: bool = False
    #: A cancel was answered with CANCELED; or with QUEUED, for a job that had not been started after that.
    is_canceled: bool = False
    never_runs: bool = False
    wrongs: list[str] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """The one id that was told."""
        (job_id,) = self.ids
        return job_id

    def heard_status(self, answer: public.GetJobStatusResponse) -> None:
        """An answer of GetJobStatus."""
        if answer.status in TERMINAL:
            _note(self.ends, answer)
        elif self.ends or self.is_canceled:
            self.wrongs.append(f"it had ended, and is {answer.status}")

    def heard_result(self, answer: public.GetJobResultResponse) -> None:
        """An answer of GetJobResult."""
        if answer.result_ready:
            _note(self.results, answer)
        elif self.ends or self.results:
            self.wrongs.append("it had ended, and has no result")

    def problems(self) -> list[str]:
        """What should not have been heard, once the last status and result were."""
        if len(self.ids) != 1:
            return [f"{len(self.ids)} ids were told"]
        if len(self.ends) != 1 or len(self.results) != 1:
            return [*self.wrongs, f"{len(self.ends)} ends and {len(self.results)} results were told"]
        end, result = self.ends[0], self.results[0]
        expected = b"." * self.plan.size if result.terminal_status == public.DONE else b""
        rules = {
            "its result has another status": end.status == result.terminal_status,
            "its output is another": result.output_bytes == expected,
            "it was canceled, and ended otherwise": end.status == public.CANCELED or not self.is_canceled,
            "it was canceled before it ran, and ran": end.status == public.CANCELED or not self.never_runs,
            "nobody canceled it": end.status != public.CANCELED or self.is_cancel_tried,
            "it cannot succeed": end.status != public.DONE or not self.plan.fails,
            "it has no reason to fail": end.status != public.FAILED or self._may_fail(end.failure_reason),
        }
        return [*self.wrongs, *(problem for problem, is_right in rules.items() if not is_right)]

    def _may_fail(self, reason: str) -> bool:
        return self.plan.fails or reason in _LOST_REASONS


def _note(told: list[T], answer: T) -> None:
    if answer not in told:
        told.append(answer)


class Client:
    """One thread that asks for one thing after the other, as chance has it."""

    def __init__(self, wire: Wire, name: str, seed: int) -> None:
        self._wire = wire
        self._name = name
        self._draw = random.Random(f"{seed} {name}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._open: list[Story] = []
        self.stories: list[Story] = []
        #: Submits without a key whose answer was lost: such a job may exist.
        self.unknown: set[str] = set()
        self.answered: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.errors: list[BaseException] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once the last call was answered, and the last repeated submit as well."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except BaseException as error:
            self.errors.append(error)
            raise

    def _step(self) -> None:
        if not self._open or (len(self._open) < _OPEN_MAX and self._draw.random() < 0.4):
            self._submit_new()
            return
        story = self._draw.choice(self.stories if self._draw.random() < 0.1 else self._open)
        chance = self._draw.random()
        if chance < 0.2 and story.plan.may_be_canceled:
            self.cancel(story)
        elif chance < 0.4:
            self.result(story)
        else:
            self.status(story)

    # -- calls

    def _ask(self, kind: str, call: Callable[[], T]) -> T | None:
        """The answer; None if it is unknown whether there was one."""
        try:
            answer = call()
        except grpc.RpcError as error:
            if error.code() not in _UNKNOWN:
                raise
            self.lost[kind] += 1
            pause()
            return None
        self.answered[kind] += 1
        return answer

    def _submit_new(self) -> None:
        draw = self._draw
        plan = Plan(
            name=f"{self._name}-{len(self.stories) + len(self.unknown)}",
            ms=draw.choice((0, 0, 0, 5, 30)),
            size=draw.choice((0, 0, 10)),
            fails=draw.random() < 0.15,
            is_keyed=draw.random() < 0.7,
            may_be_canceled=draw.random() < 0.3,
        )
        story = Story(plan)
        while not self.submit(story):
            if not plan.is_keyed:
                self.unknown.add(plan.name)
                return
        self.stories.append(story)
        self._open.append(story)

    def submit(self, story: Story) -> bool:
        """Whether it was acknowledged."""
        plan = story.plan
        key = plan.name if plan.is_keyed else ""
        labels = {"sim.fail": FAILS} if plan.fails else {}
        spec = {"key": key, "ms": plan.ms, "size": plan.size, "labels": labels, "timeout_s": _TIMEOUT_S}
        answer = self._ask("submit", lambda: self._wire.submit(plan.name, **spec))  # type: ignore[arg-type]
        if answer is not None:
            story.ids.add(answer.job_id)
        return answer is not None

    def status(self, story: Story) -> public.GetJobStatusResponse | None:
        """The answer, if there was one."""
        answer = self._ask("status", lambda: self._wire.status(story.job_id, timeout_s=_TIMEOUT_S))
        if answer is not None:
            story.heard_status(answer)
            if story.ends and story in self._open:
                self._open.remove(story)
        return answer

    def result(self, story: Story) -> bool:
        """Whether it was answered."""
        answer = self._ask("result", lambda: self._wire.result(story.job_id))
        if answer is not None:
            story.heard_result(answer)
        return answer is not None

    def cancel(self, story: Story) -> None:
        """Asks once; what it promises is noted."""
        story.is_cancel_tried = True
        answer = self._ask("cancel", lambda: self._wire.cancel(story.job_id, "by a client"))
        if answer is None:
            return
        if answer.current_status == public.CANCELED:
            story.is_canceled = True
            self.status(story)
        elif answer.accepted and answer.current_status == public.QUEUED:
            after = self.status(story)
            story.never_runs |= after is not None and after.status == public.QUEUED and not after.started_at_ms
