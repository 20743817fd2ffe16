"""Images made from the previous image and the events since, without loading all jobs."""

import random
from collections.abc import Iterator

import pytest

from holdfast.core import commands, image
from holdfast.core.commands import Decision
from holdfast.core.digest import DIGEST_VERSION
from holdfast.core.events import AnyEvent, Evicted
from holdfast.core.image_part import ImageFacts, ImagePart, NeededJobs, examine
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.core.model import BackoffRule, Extra, NewJob, Now, QueueMode, ScheduleSpec, Template

TEMPLATES = [
    Template("a", max_attempts=2, backoff=BackoffRule(0, 50, 50)),
    Template("b", queue="slow", priority=7),
    Template("c", max_losses=1),
]


class History:
    """A ledger that is driven by random commands, and the resulting events."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ledger = Ledger(LedgerConfig())
        self.now = Now(1_000, 0)
        self.ledger.leases.resume(self.now)
        self.ids = 0

    def events(self, count: int) -> Iterator[AnyEvent]:
        """Yields `count` more events; each is applied before it is yielded."""
        while count:
            self.now = Now(self.now.log_ms + self.rng.randint(0, 20), self.now.served_ms + self.rng.randint(0, 20))
            event = self._event()
            if event is not None:
                self.ledger.apply(event)
                count -= 1
                yield event

    def _event(self) -> AnyEvent | None:
        if self.ledger.state.finished and self.rng.random() < 0.02:
            return Evicted(self.now.log_ms, 1)  # the eviction event of earlier versions
        decided = self.ledger.decide(self._command(), self.now)
        return decided.event if isinstance(decided, Decision) else None

    def _command(self) -> commands.AnyCommand:
        rng, state = self.rng, self.ledger.state
        known = [*state.jobs, "nobody"]
        worker = rng.choice("vw")
        leases = [state.leases[token] for token in state.tokens_of.get(worker, ())]
        rows = [
            commands.ReportRow(
                lease.job.id, lease.token, rng.choice([DONE, DONE, FAILED, CANCELED]), bytes(rng.randint(0, 9))
            )
            for lease in leases[:2]
        ]
        spec = ScheduleSpec("s", TEMPLATES[0], every_ms=1_000, overlap=rng.choice(["allow", "skip", "cancel_running"]))
        possible: list[commands.AnyCommand] = [
            commands.Submit(TEMPLATES, [self._new() for _ in range(rng.randint(1, 4))]),
            commands.Submit(TEMPLATES, [self._new() for _ in range(rng.randint(1, 4))]),
            commands.GrantLeases(worker, frozenset("abc"), frozenset(), rng.randint(1, 3), 200),
            commands.GrantLeases(worker, frozenset("abc"), frozenset(), rng.randint(1, 3), 200),
            commands.Report(worker, rows),
            commands.Report(worker, rows),
            commands.Cancel(rng.choice(known), "why"),
            commands.CancelQueued([rng.choice(known), rng.choice(known)], "why"),
            commands.Revoke(worker, "gone", is_spent=rng.random() < 0.5),
            commands.Extend(worker, 200),
            commands.Expire(),
            commands.Evict(300, 20, 1 << 30, 600),
            commands.SetQueueMode("slow", rng.choice(list(QueueMode)), ""),
            commands.SetSchedule(spec),
            commands.TriggerSchedule("s", self._fresh_id()),
            commands.Tick(self._fresh_id()),
        ]
        return rng.choice(possible)

    def _new(self) -> NewJob:
        rng = self.rng
        extra = Extra(
            request_id=rng.choice(["", f"r{rng.randint(0, 40)}"]),
            labels=(("k", "v" * rng.randint(0, 9)),),
            unique_key=rng.choice(["", "", f"u{rng.randint(0, 5)}"]),
        )
        due_ms = rng.choice([0, 0, self.now.log_ms + 30])
        return NewJob(self._id(), rng.randrange(3), bytes(rng.randint(0, 9)), due_ms, rng.choice([None, extra]))

    def _id(self) -> str:
        """Returns a new id, or one that was used before and whose job may have been evicted."""
        return f"j{self.rng.randint(0, 30)}" if self.rng.random() < 0.3 else self._fresh_id()

    def _fresh_id(self) -> str:
        self.ids += 1
        return f"n{self.ids}"


@pytest.mark.parametrize("seed", range(40))
def test_image_of_a_part_is_that_of_the_whole_byte_for_byte(seed: int) -> None:
    """An image made from the previous one and the events since equals the image of the whole ledger byte for byte."""
    history = History(seed)
    before: list[bytes] | None = None
    for _ in range(12):
        events = list(history.events(history.rng.randint(1, 25)))
        needs = NeededJobs()
        for event in events:
            needs.add(event)
        if before is None:
            part = ImagePart(Ledger(LedgerConfig()))
        else:
            part = ImagePart.load(before.copy, needs, examine(before, DIGEST_VERSION), LedgerConfig())
        for event in events:
            part.ledger.apply(event)
            assert part.ledger.position <= history.ledger.position
        assert part.ledger.digest == history.ledger.digest
        before = list(part.dump())
        assert before == list(image.dump(history.ledger))
        assert examine(before, DIGEST_VERSION) == ImageFacts(
            history.ledger.position, history.ledger.digest, DIGEST_VERSION
        )
    history.ledger.state.audit()


def test_part_holds_only_jobs_that_events_can_change() -> None:
    """A part of an image holds the canceled and the running job of a thousand, without payloads and labels."""
    ledger = Ledger(LedgerConfig())
    ledger.leases.resume(Now(0, 0))

    def do(command: commands.AnyCommand) -> AnyEvent:
        decided = ledger.decide(command, Now(1, 1))
        assert isinstance(decided, Decision)
        assert decided.event is not None
        ledger.apply(decided.event)
        return decided.event

    extra = Extra(labels=(("k", "v"),))
    do(commands.Submit([Template("a")], [NewJob(f"j{n}", 0, b"payload", 0, extra) for n in range(1_000)]))
    do(commands.GrantLeases("w", frozenset("a"), frozenset(), 1, 1_000))
    before = list(image.dump(ledger))
    facts = examine(before, DIGEST_VERSION)
    needs = NeededJobs()
    needs.add(do(commands.Cancel("j500", "")))
    part = ImagePart.load(before.copy, needs, facts, LedgerConfig())
    held = part.ledger.state.jobs
    assert {job.id: (job.payload, job.extra) for job in held.values()} == {"j0": (b"", None), "j500": (b"", None)}
