"""Clients that use the product's own connection and retries, on simulated connections."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import structs

from holdfast.client.endpoints import UnixEndpoint
from holdfast.client.reconnect_policy import patiently
from holdfast.client.remote import RemoteJobs
from holdfast.client.retry_policy import NoRetryPolicy, RetryPolicy
from holdfast.client.wire_transport import ReconnectingTransport
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.model import Extra, Template
from holdfast.core.owner import uuid4
from holdfast.errors import DeadlineExceededError, HoldfastError, UnavailableError
from holdfast.ports import JobDraft
from holdfast_lab.simulation.connections import Connector
from holdfast_lab.simulation.response_checks import ResponseChecks
from holdfast_lab.simulation.runtime_rules import RuntimeRules
from holdfast_lab.simulation.runtime_workers import SOCKET
from holdfast_lab.simulation.swarm import SwarmSettings
from holdfast_lab.simulation.violation import require
from holdfast_lab.simulation.witness import LogWitness

T = TypeVar("T")

_BACKLOG_MAX = 80
_BATCH_MAX = 3
_AWAIT_S = 2.0
#: The pause of a client program after the library has given up.
_PAUSE_S = 0.3
_IDS, _KEYS = 0.4, 0.8
_HALF = 0.5


class RuntimeClient:
    """One client program that never dies; it knows which of its submits got a response."""

    def __init__(
        self,
        name: str,
        connector: Connector,
        response_checks: ResponseChecks,
        rules: RuntimeRules,
        log: LogWitness,
        settings: SwarmSettings,
        templates: list[Template],
    ) -> None:
        self.name = name
        self._connector = connector
        self._response_checks = response_checks
        self._rules = rules
        self._log = log
        self._settings = settings
        self._templates = [structs.replace(template, simulated=False) for template in templates]
        self._rng = random.Random(f"{name}/{settings.seed}")
        #: Whether calls are repeated as by a directory's link, or by the policy of a remote client.
        self._is_patient = self._rng.random() < _HALF
        self._number = 0
        self.is_stopped = False
        self.is_waiting = False
        self.program = connector.program(name)
        connector.clock.after(self._rng.randint(0, 50_000), f"{name} starts", self._start)

    def _start(self) -> None:
        loop = self.program.loop
        loop.visit(lambda: loop.create_task(self._judged()))

    async def _judged(self) -> None:
        with self.program.loop.judging():
            await self._live()

    async def _live(self) -> None:
        retry_policy = NoRetryPolicy() if self._is_patient else RetryPolicy(draw=self._rng.uniform)
        jobs = RemoteJobs(ReconnectingTransport(UnixEndpoint(SOCKET)), retry_policy, joins=self._rng.random() < _HALF)
        while not self.is_stopped:
            await asyncio.sleep(self._rng.uniform(0, 2 * self._settings.think_ms) / 1_000)
            if self._response_checks.backlog <= _BACKLOG_MAX:
                self.is_waiting = True
                await self._submit(jobs)
                self.is_waiting = False

    async def _submit(self, jobs: RemoteJobs) -> None:
        is_repeatable = self._rng.random() < _KEYS
        drafts = [self._draft(is_repeatable=is_repeatable) for _ in range(self._rng.randint(1, _BATCH_MAX))]
        while True:
            try:
                reply = await self._call(lambda: jobs.submit(self._templates, drafts), is_repeatable=is_repeatable)
            except (UnavailableError, DeadlineExceededError):
                self._response_checks.count("runtime submit unanswered")
                if not is_repeatable:
                    return  # it may have arrived, and must not be sent again
                await asyncio.sleep(_PAUSE_S)
            except HoldfastError as error:
                self._response_checks.count(f"runtime refused {error.reason}")
                return
            else:
                self._rules.answered(self._templates, drafts, reply)
                await self._await_end(jobs, reply.job_ids[0])
                return

    async def _call(self, once: Callable[[], Awaitable[T]], *, is_repeatable: bool) -> T:
        return await (patiently(once) if self._is_patient and is_repeatable else once())

    def _draft(self, *, is_repeatable: bool) -> JobDraft:
        rng, self._number = self._rng, self._number + 1
        mark = f"{self.name}-{self._number}"
        self._rules.sent(mark.encode(), is_repeatable=is_repeatable)
        has_id = is_repeatable and rng.random() < _IDS
        return JobDraft(
            template=rng.randrange(len(self._templates)),
            payload=f"{mark}/".encode() + rng.randbytes(rng.randint(0, self._settings.payload_bytes)),
            extra=Extra(mark) if is_repeatable and not has_id else None,
            id=uuid4(rng.randbytes(16)) if has_id else "",
        )

    async def _await_end(self, jobs: RemoteJobs, job_id: str) -> None:
        """Sometimes waits for the end of a job, as the SDK does; the result must match the log."""
        if not job_id or self._rng.random() < _HALF:
            return
        try:
            async with asyncio.timeout(_AWAIT_S):
                view, result = await patiently(lambda: jobs.settled(job_id))
        except (TimeoutError, HoldfastError):
            return
        require(view.state in TERMINAL, f"{self.name} received the end of {job_id} with the state {view.state}")
        job = self._log.model.jobs.get(job_id)
        if job is not None and self._log.is_single(job_id):
            require(
                job.state == view.state == result.state, f"{self.name} received {job_id} with the state {view.state!r}"
            )
        self._response_checks.count("runtime settled")
