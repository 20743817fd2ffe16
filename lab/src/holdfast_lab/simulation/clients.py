"""Clients: they submit, read and cancel, and repeat calls without a response under the same key."""

import random
from collections.abc import Callable

from msgspec import structs

from holdfast.core import commands
from holdfast.core.commands import Refusal, Submit, Submitted
from holdfast.core.model import Extra, NewJob, Template
from holdfast.core.owner import uuid4
from holdfast.ledger.coordinator import CommandLane
from holdfast_lab.simulation.jobs import POISON
from holdfast_lab.simulation.network import Network
from holdfast_lab.simulation.response_checks import JobSeen, PageSeen, ResponseChecks
from holdfast_lab.simulation.server import SimulatedServer
from holdfast_lab.simulation.swarm import SwarmSettings

_TIMEOUT_US = 700_000
_TRIES = 6
_IDS_KEPT = 60
_RECENT = 6
_KEYS_KEPT = 12
#: So few that the clients of a run collide on them.
_UNIQUE_KEYS = 3
_BATCH_MAX = 12
_DELAY_MS_MAX = 3_000
_RUSH = 25
#: A queue that grows without end would only slow down the run.
_BACKLOG_MAX = 80


class SimulatedSubmit:
    """One submit; each try gets new ids, as from a gateway, unless the client made them."""

    __slots__ = ("jobs", "templates")

    def __init__(self, templates: list[Template], jobs: list[NewJob]) -> None:
        self.templates = templates
        self.jobs = jobs

    def command(self, mint: Callable[[], str]) -> Submit:
        """Returns the command with the client's ids, or with new ones."""
        if self.are_ids_given:
            return Submit(self.templates, self.jobs, are_ids_given=True)
        jobs = [NewJob(mint(), job.template, job.payload, job.not_before_ms, job.extra) for job in self.jobs]
        return Submit(self.templates, jobs)

    @property
    def are_ids_given(self) -> bool:
        """Whether the client made the ids; of all jobs or of none."""
        return bool(self.jobs and self.jobs[0].id)

    @property
    def is_repeatable(self) -> bool:
        """Whether a second try can find the jobs of the first."""
        return self.are_ids_given or any(job.extra for job in self.jobs)


class SimulatedClient:
    """One caller, one request at a time."""

    def __init__(
        self,
        name: str,
        net: Network,
        response_checks: ResponseChecks,
        settings: SwarmSettings,
        templates: list[Template],
    ) -> None:
        self.name = name
        self._net = net
        self._response_checks = response_checks
        self._settings = settings
        self._templates = templates
        self._rng = random.Random(f"{name}/{settings.seed}")
        self._ids: list[str] = []
        self._used: list[SimulatedSubmit] = []
        self._number = 0
        self._minted = 0
        self._rush = 0
        self.is_stopped = False
        self._operations = (
            (self._submit, 40),
            (self._resubmit, 6),
            (self._contradict, 3),
            (self._get, 25),
            (self._list, 8),
            (self._cancel, 12),
        )
        net.clock.after(self._rng.randint(0, 50_000), name, self.act)

    def act(self) -> None:
        """Makes one request, and another one later."""
        if self.is_stopped:
            return
        if self._response_checks.backlog > _BACKLOG_MAX:
            self._get()
            return
        (operation,) = self._rng.choices(
            [call for call, _ in self._operations], [weight for _, weight in self._operations]
        )
        operation()

    def _next(self) -> None:
        if self._rush == 0 and self._rng.random() < 0.01:  # noqa: PLR2004 - now and then a flood
            self._rush = _RUSH
        self._rush = max(0, self._rush - 1)
        think_us = 50 if self._rush else self._rng.randint(0, 2_000 * self._settings.think_ms)
        self._net.clock.after(think_us, self.name, self.act)

    def _ask(
        self,
        what: str,
        send: Callable[[SimulatedServer, Callable[[object], None]], None],
        judge: Callable[[object], None],
        hear: Callable[[object], None],
        again: Callable[[], None] | None = None,
    ) -> None:
        """Sends one request; the first response or the timeout continues, later responses are ignored."""
        is_open = True

        def close(after: Callable[[], None]) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                timer.cancel()
                after()

        def heard(reply: object) -> None:
            close(lambda: hear(reply))

        timer = self._net.clock.after(_TIMEOUT_US, f"{self.name} timeout", lambda: close(again or self._next))
        self._net.ask(self.name, f"{self.name} {what}", send, judge, heard)

    # -- submitting

    def _submit(self) -> None:
        count = 1 if self._rng.random() < 0.6 else self._rng.randint(2, _BATCH_MAX)  # noqa: PLR2004
        indexes = [self._rng.randrange(len(self._templates)) for _ in range(count)]
        jobs = [self._new_job(index) for index in indexes]
        if self._rng.random() < 0.4:  # noqa: PLR2004 - as the SDK does
            jobs = [structs.replace(job, id=uuid4(self._rng.randbytes(16))) for job in jobs]
        if count > 1 and (jobs[0].extra or jobs[0].id) and self._rng.random() < 0.1:  # noqa: PLR2004 - a key twice in one batch
            jobs[-1] = jobs[0]
        self._send_order(SimulatedSubmit(self._templates, jobs))

    def _new_job(self, template: int) -> NewJob:
        rng, self._number = self._rng, self._number + 1
        payload = rng.randbytes(rng.randint(0, self._settings.payload_bytes))
        if self._net.hits("poison"):
            payload = POISON + payload
        not_before_ms = self._net.clock.wall_ms() + rng.randint(1, _DELAY_MS_MAX) if rng.random() < 0.2 else 0  # noqa: PLR2004
        labels = (("from", self.name),) if rng.random() < 0.3 else ()  # noqa: PLR2004
        key = f"{self.name}-key-{self._number}" if rng.random() < 0.5 else ""  # noqa: PLR2004
        unique_key = f"unique-{rng.randrange(_UNIQUE_KEYS)}" if rng.random() < 0.2 else ""  # noqa: PLR2004
        extra = Extra(key, labels, unique_key=unique_key) if key or labels or unique_key else None
        return NewJob("", template, payload, not_before_ms, extra)

    def _mint(self) -> str:
        self._minted += 1
        return f"{self.name}-{self._minted}"

    def _send_order(self, order: SimulatedSubmit, tries: int = _TRIES) -> None:
        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            command = order.command(self._mint)

            def judged(reply: object) -> None:
                self._response_checks.submitted_reply(command, reply)
                done(reply)

            server.coordinator.call(CommandLane.SUBMIT, command, judged)

        def hear(reply: object) -> None:
            if isinstance(reply, Refusal) and reply.reason != "INVALID_ARGUMENT" and tries > 1:
                self._net.clock.after(
                    _TIMEOUT_US // 10, f"{self.name} again", lambda: self._send_order(order, tries - 1)
                )
                return
            self._keep(order, reply)
            self._next()

        def again() -> None:
            if tries > 1 and not self.is_stopped:
                self._send_order(order, tries - 1)
            else:
                self._next()

        self._ask("submit", send, _ignore, hear, again)

    def _keep(self, order: SimulatedSubmit, reply: object) -> None:
        if isinstance(reply, Submitted):
            self._ids = [*self._ids, *filter(None, reply.job_ids)][-_IDS_KEPT:]
            if order.is_repeatable:
                self._used = [*self._used, order][-_KEYS_KEPT:]

    def _resubmit(self) -> None:
        """Repeats a submit under the same keys, long after its response."""
        if self._used:
            self._send_order(self._rng.choice(self._used), tries=1)
        else:
            self._next()

    def _contradict(self) -> None:
        """Submits other content under a used key."""
        if not self._used:
            self._next()
            return
        order = self._rng.choice(self._used)
        jobs = [
            structs.replace(job, payload=job.payload + b"!") for job in order.jobs if job.extra or order.are_ids_given
        ]
        self._send_order(SimulatedSubmit(order.templates, jobs), tries=1)

    # -- reading and canceling

    def _some_id(self) -> str:
        if not self._ids or self._rng.random() < 0.03:  # noqa: PLR2004
            return f"{self.name}-nothing"
        # The newest jobs are the most likely to be running.
        recent = self._ids[-_RECENT:] if self._rng.random() < 0.5 else self._ids  # noqa: PLR2004
        return self._rng.choice(recent)

    def _get(self) -> None:
        job_id = self._some_id()

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.read(CommandLane.SUBMIT, lambda ledger, _: JobSeen(ledger, job_id), done)

        self._ask("get", send, self._response_checks.saw_job, self._go_on)

    def _list(self) -> None:
        rng = self._rng
        states = frozenset(rng.sample(range(1, 6), rng.randint(0, 3)))
        offset, size, newest_first = rng.choice([0, 0, 3, 40]), rng.randint(1, 30), rng.random() < 0.5  # noqa: PLR2004

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.read(
                CommandLane.LIST,
                lambda ledger, _: PageSeen(ledger, states, offset, size, newest_first=newest_first),
                done,
            )

        self._ask("list", send, self._response_checks.saw_page, self._go_on)

    def _cancel(self) -> None:
        job_id = self._some_id()

        def send(server: SimulatedServer, done: Callable[[object], None]) -> None:
            server.coordinator.call(CommandLane.SUBMIT, commands.Cancel(job_id, "not needed"), done)

        self._ask("cancel", send, lambda reply: self._response_checks.canceled_reply(job_id, reply), self._go_on)

    def _go_on(self, _: object) -> None:
        self._next()


def _ignore(_: object) -> None:
    """Does nothing: the response is checked where the command is known."""
