"""Random histories of envelopes, compared with a list that is searched linearly."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.topologies.microservices.state.envelopes import Envelope, EnvelopeRetention, Envelopes

RETENTION = EnvelopeRetention(age_ms=100, envelopes=6, bytes=40, failed_age_ms=250)
IDS = [f"job-{number}" for number in range(12)]
ENVELOPES = st.builds(
    Envelope,
    st.sampled_from(IDS),
    st.sampled_from([DONE, FAILED, CANCELED]),
    st.integers(0, 1),
    st.sampled_from(["", "words"]),
    st.sampled_from([b"", b"output", bytes(20)]),
)


def _size(envelope: Envelope) -> int:
    return len(envelope.output) + len(envelope.summary)


class EnvelopesMachine(RuleBasedStateMachine):
    """Stores envelopes in any order, over restarts from an image and from the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes = Envelopes(RETENTION)
        #: The model: the stored envelopes with their times, the oldest first.
        self.kept: list[tuple[Envelope, int]] = []
        self.now_ms = 0
        self.journal: list[bytes] = []

    @rule(step_ms=st.integers(1, 40))
    def wait(self, step_ms: int) -> None:
        """Advances the time."""
        self.now_ms += step_ms

    @rule(envelope=ENVELOPES)
    def store(self, envelope: Envelope) -> None:
        """Stores an envelope, which need not be the first of its job."""
        storing = self.envelopes.decide_store(envelope, self.now_ms)
        known = [row for row in self.kept if row[0].job_id == envelope.job_id]
        assert storing.is_first == (not known)
        assert storing.standing == (known[0][0] if known else envelope)
        self.journal.append(self.envelopes.encode(storing.event))
        self.envelopes.apply(storing.event)
        if known:
            self.kept.remove(known[0])
        else:
            self._make_room(envelope)
        self.kept.append((storing.standing, self.now_ms))

    def _make_room(self, envelope: Envelope) -> None:
        while (victim := self._victim(envelope)) is not None:
            self.kept.remove(victim)

    def _victim(self, envelope: Envelope) -> tuple[Envelope, int] | None:
        """Returns the next envelope to remove; failed jobs go first only if they take more than half of the limit."""
        failed = [row for row in self.kept if row[0].state == FAILED]
        others = [row for row in self.kept if row[0].state != FAILED]
        for rows, age_ms in ((others, RETENTION.age_ms), (failed, RETENTION.failed_age_ms)):
            if rows and self.now_ms - rows[0][1] >= age_ms:
                return rows[0]
        number, size = RETENTION.envelopes - 1, RETENTION.bytes - _size(envelope)
        if len(self.kept) <= number and sum(_size(row) for row, _ in self.kept) <= size:
            return None
        is_flood = 2 * len(failed) > number or 2 * sum(_size(row) for row, _ in failed) > size
        return next((rows[0] for rows in ((failed, others) if is_flood else (others, failed)) if rows), None)

    @rule()
    def restart_from_an_image(self) -> None:
        """Continues from an image, which dumps to the same bytes again."""
        before, chunks = self.envelopes, list(self.envelopes.image())
        self.envelopes = Envelopes(RETENTION)
        self.envelopes.restore(chunks)
        assert list(self.envelopes.image()) == chunks
        assert self.envelopes.digest == before.digest

    @rule()
    def restart_from_the_journal(self) -> None:
        """Continues from all events of the journal."""
        before = self.envelopes
        self.envelopes = Envelopes(RETENTION)
        for data in self.journal:
            self.envelopes.apply(self.envelopes.decode(data))
        assert list(self.envelopes.image()) == list(before.image())
        assert self.envelopes.digest == before.digest

    @invariant()
    def what_is_found_is_what_the_model_keeps(self) -> None:
        """The envelopes found equal those of the model, and the audit passes."""
        expected = {envelope.job_id: envelope for envelope, _ in self.kept}
        assert {job_id: found for job_id in IDS if (found := self.envelopes.find(job_id))} == expected
        assert len(self.envelopes) == len(expected)
        self.envelopes.audit()


TestEnvelopes = EnvelopesMachine.TestCase
TestEnvelopes.settings = settings(max_examples=150, stateful_step_count=40)
