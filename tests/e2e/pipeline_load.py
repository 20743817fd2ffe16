"""Clients of the pipeline's gateway that write down what they were answered, and what may follow from it.

Whatever happens, a call ends before its deadline: with an answer, or with UNAVAILABLE. Whoever says so, unless it is
the client's own connection, says when to try again. Then it is unknown whether it was done.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from holdfast.core.outcomes import LOSSES_SPENT
from holdfast.proto import holdfast_pb2 as own
from holdfast.proto import taskqueue_public_pb2 as public
from tests.e2e.waiting import pause
from tests.e2e.wire import DETAILS, TERMINAL, Wire, taken_apart

T = TypeVar("T")

#: Longer than any call may take; whoever meets it was left hanging.
_HANG_S = 30.0
#: A client that waits for so many jobs submits no more.
_OPEN_MAX = 16
_BATCH_MAX = 4
_PUBLIC = "/taskqueue.v1.TaskQueuePublicService"


@dataclass(frozen=True)
class Plan:
    """What one job is to do; without a key its submit cannot be repeated."""

    name: str
    ms: int
    fails: int
    max_attempts: int
    priority: int
    delay_ms: int
    is_keyed: bool
    may_be_canceled: bool

    def template(self) -> own.JobTemplate:
        """With pauses between attempts that a test can wait for."""
        backoff = own.Backoff(base_ms=100, max_ms=400)
        return own.JobTemplate(
            type="work", priority=self.priority, max_attempts=self.max_attempts, backoff=backoff, max_losses=20
        )

    def job(self, template: int) -> own.NewJob:
        """By its label a row tells which submit it came from."""
        return own.NewJob(
            template=template,
            payload=f"{self.ms} {self.fails}".encode(),
            request_id=self.name if self.is_keyed else "",
            delay_ms=self.delay_ms,
            labels={"name": self.name},
        )


@dataclass
class Story:
    """What one client has heard of one job."""

    plan: Plan
    ids: set[str] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    is_cancel_tried: bool = False
    #: A cancel was answered with CANCELED.
    is_canceled: bool = False
    wrongs: list[str] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """The one id that was told."""
        (job_id,) = self.ids
        return job_id

    def heard(self, status: int) -> None:
        """An answer of GetJobStatus."""
        if status in TERMINAL:
            self.ends.add(status)
        elif self.ends:
            self.wrongs.append(f"it had ended, and is {status}")

    def problems(self, state: int, reason: str) -> list[str]:
        """What does not fit how it ended."""
        plan = self.plan
        rules = {
            f"{len(self.ids)} ids were told": len(self.ids) == 1,
            f"{sorted(self.ends)} were told, and it is {state}": self.ends <= {state},
            "it was canceled, and ended otherwise": state == public.CANCELED or not self.is_canceled,
            "nobody canceled it": state != public.CANCELED or self.is_cancel_tried,
            f"it has no reason to fail, but for {reason}": state != public.FAILED
            or plan.fails >= plan.max_attempts
            or reason == LOSSES_SPENT,
        }
        return [*self.wrongs, *(problem for problem, is_right in rules.items() if not is_right)]


class Client:
    """One thread that asks for one thing after the other, as chance has it."""

    def __init__(self, wire: Wire, name: str, seed: int) -> None:
        self._wire = wire
        self._name = name
        self._draw = random.Random(f"{seed} {name}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._open: list[Story] = []
        self._count = 0
        self.stories: list[Story] = []
        #: Submits without a key whose answer was lost: such a job may exist.
        self.unknown: set[str] = set()
        self.answered: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        #: Refusals that said when to try again.
        self.hints = 0
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
        story = self._draw.choice(self._open)
        if story.plan.may_be_canceled and self._draw.random() < 0.3:
            self.cancel(story)
        else:
            self.status(story)

    # -- calls

    def _ask(self, kind: str, path: str, body: bytes, parse: Callable[[bytes], T]) -> T | None:
        """The answer; None if it is unknown whether it was done."""
        try:
            answer = parse(self._wire.raw(path, body, timeout_s=_HANG_S))
        except grpc.RpcError as error:
            self._bear(kind, error)
            return None
        self.answered[kind] += 1
        return answer

    def _bear(self, kind: str, error: grpc.RpcError) -> None:
        refused = taken_apart(error)
        if refused.code is not grpc.StatusCode.UNAVAILABLE:
            raise AssertionError(f"expected {kind} to be UNAVAILABLE at worst, got {refused}") from error
        if any(item.key == DETAILS for item in error.trailing_metadata() or ()):
            assert float(refused.info.metadata["retry_after_s"]) > 0, refused
            self.hints += 1
        self.lost[kind] += 1
        pause(0.05)

    def _submit_new(self) -> None:
        stories = [Story(self._plan()) for _ in range(self._draw.randrange(1, _BATCH_MAX + 1))]
        while not self.submit(stories):
            stories = [story for story in stories if not self._is_given_up(story)]
            if not stories:
                return
        self.stories += stories
        self._open += stories

    def _is_given_up(self, story: Story) -> bool:
        if not story.plan.is_keyed:
            self.unknown.add(story.plan.name)
        return not story.plan.is_keyed

    def _plan(self) -> Plan:
        draw, self._count = self._draw, self._count + 1
        return Plan(
            name=f"{self._name}-{self._count}",
            ms=draw.choice((0, 0, 0, 5, 30, 200)),
            fails=draw.choice((0, 0, 0, 0, 1, 2, 9)),
            max_attempts=3,
            priority=draw.choice((0, 5, 5, 5, 8, 9)),
            delay_ms=draw.choice((0, 0, 0, 0, 300, 2_000)),
            is_keyed=draw.random() < 0.6,
            may_be_canceled=draw.random() < 0.3,
        )

    def submit(self, stories: list[Story]) -> bool:
        """Whether they were acknowledged."""
        request = own.SubmitJobsRequest(
            templates=[story.plan.template() for story in stories],
            jobs=[story.plan.job(index) for index, story in enumerate(stories)],
        )
        path, parse = "/holdfast.v1.JobService/SubmitJobs", own.SubmitJobsResponse.FromString
        answer = self._ask("submit", path, request.SerializeToString(), parse)
        if answer is not None:
            assert not answer.refusals, answer
            for story, job_id in zip(stories, answer.job_ids, strict=True):
                story.ids.add(job_id)
        return answer is not None

    def status(self, story: Story) -> None:
        """Notes how it is."""
        body = public.GetJobStatusRequest(job_id=story.job_id).SerializeToString()
        answer = self._ask("status", f"{_PUBLIC}/GetJobStatus", body, public.GetJobStatusResponse.FromString)
        if answer is not None:
            story.heard(answer.status)
            if story.ends:
                self._open.remove(story)

    def cancel(self, story: Story) -> None:
        """Asks once; what it promises is noted."""
        story.is_cancel_tried = True
        body = public.CancelJobRequest(job_id=story.job_id, reason="by a client").SerializeToString()
        answer = self._ask("cancel", f"{_PUBLIC}/CancelJob", body, public.CancelJobResponse.FromString)
        if answer is not None and answer.current_status == public.CANCELED:
            story.is_canceled = True
