"""Envelopes: the first one stays, limits remove the oldest, and each envelope outlives its job."""

import hashlib

import msgspec
import pytest

from holdfast.core.lifecycle import CANCELED, DONE, FAILED
from holdfast.settings import Settings
from holdfast.topologies.microservices.state.envelopes import (
    Confirmed,
    Envelope,
    EnvelopeEvent,
    EnvelopeRetention,
    Envelopes,
    Filed,
    Stored,
)

PLENTY = EnvelopeRetention(age_ms=1_000_000, envelopes=1_000_000, bytes=1 << 30)


def store(envelopes: Envelopes, envelope: Envelope, now_ms: int = 1) -> Envelope:
    """Decides and applies; returns the envelope that is stored afterwards."""
    storing = envelopes.decide_store(envelope, now_ms)
    envelopes.apply(storing.event)
    envelopes.audit()
    return storing.standing


def kept(envelopes: Envelopes, *job_ids: str) -> list[str]:
    return [job_id for job_id in job_ids if envelopes.find(job_id)]


@pytest.mark.parametrize(
    "other",
    [
        Envelope("a", FAILED, 5, "words", b"out"),
        Envelope("a", DONE, 6, "words", b"out"),
        Envelope("a", DONE, 5, "other words", b"out"),
        Envelope("a", DONE, 5, "words", b"other"),
    ],
)
def test_first_envelope_stays(other: Envelope) -> None:
    """A second envelope of the same job changes nothing, and its reply holds the first envelope."""
    envelopes = Envelopes(PLENTY)
    first = Envelope("a", DONE, 5, "words", b"out")
    assert envelopes.decide_store(first, 1).is_first
    assert store(envelopes, first) == first
    storing = envelopes.decide_store(other, 2)
    assert not storing.is_first
    assert storing.standing == first != other
    envelopes.apply(storing.event)
    assert envelopes.find("a") == first


def test_checksum_is_that_of_the_bytes() -> None:
    """The checksum of an envelope is the lower-case hex SHA-256 of its output, also of an empty one."""
    assert Envelope("a", DONE, output=b"out").checksum == hashlib.sha256(b"out").hexdigest()
    assert Envelope("a", CANCELED).checksum == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_oldest_go_beyond_the_number() -> None:
    """Above the number of envelopes retained, the oldest one is removed at once."""
    envelopes = Envelopes(EnvelopeRetention(age_ms=1_000, envelopes=2, bytes=1_000))
    for job_id in "abc":
        store(envelopes, Envelope(job_id, DONE))
    assert kept(envelopes, *"abc") == ["b", "c"]


def test_oldest_go_beyond_the_bytes() -> None:
    """A new envelope removes the oldest ones until the limit of bytes, which counts outputs and summaries, holds."""
    envelopes = Envelopes(EnvelopeRetention(age_ms=1_000, envelopes=100, bytes=10))
    for job_id in "abc":
        store(envelopes, Envelope(job_id, DONE, summary="12", output=b"3"))
    store(envelopes, Envelope("d", DONE, output=b"12345"))
    assert kept(envelopes, *"abcd") == ["c", "d"]
    store(envelopes, Envelope("e", DONE, output=b"12345678901"))
    assert kept(envelopes, *"abcde") == ["e"]
    assert envelopes.bytes_held == 11


def test_envelopes_of_failed_jobs_have_an_age_of_their_own() -> None:
    """An envelope of a failed job is kept by its own age, although an envelope stored later is gone."""
    envelopes = Envelopes(EnvelopeRetention(age_ms=100, envelopes=9, bytes=999, failed_age_ms=300))
    for number, state in enumerate((FAILED, DONE)):
        store_quickly(envelopes, Envelope(f"job-{number}", state), now_ms=0)
    store_quickly(envelopes, Envelope("job-2", DONE), now_ms=299)
    assert [envelopes.find(f"job-{number}") is not None for number in range(3)] == [True, False, True]
    store_quickly(envelopes, Envelope("job-3", DONE), now_ms=300)
    assert envelopes.find("job-0") is None


def test_event_of_an_earlier_version_forgets_the_oldest_of_all() -> None:
    """A `Stored` event, which is older than the retention of failed jobs, removes the oldest envelopes of any state."""
    envelopes = Envelopes(PLENTY)
    for number, state in enumerate((DONE, FAILED, DONE, FAILED)):
        store_quickly(envelopes, Envelope(f"job-{number}", state), now_ms=0)
    again = Envelopes(PLENTY)
    again.restore(envelopes.image())
    again.apply(Stored(0, Envelope("new", DONE), 2))
    assert [again.find(f"job-{number}") is not None for number in range(4)] == [False, False, True, True]
    again.audit()


def test_old_ones_go_when_something_comes() -> None:
    """An envelope is removed at its age and not before, and only when another one is stored."""
    envelopes = Envelopes(EnvelopeRetention(age_ms=1_000, envelopes=100, bytes=1_000))
    store(envelopes, Envelope("a", DONE), now_ms=5)
    store(envelopes, Envelope("b", DONE), now_ms=6)
    store(envelopes, Envelope("c", DONE), now_ms=1_004)
    assert kept(envelopes, *"abc") == ["a", "b", "c"]
    store(envelopes, Envelope("d", DONE), now_ms=1_005)
    assert kept(envelopes, *"abcd") == ["b", "c", "d"]


def test_storing_again_renews_the_time() -> None:
    """Storing an envelope again renews its time, so that a job that ends much later still finds it."""
    envelopes = Envelopes(EnvelopeRetention(age_ms=1_000, envelopes=2, bytes=1_000))
    store(envelopes, Envelope("a", DONE), now_ms=5)
    store(envelopes, Envelope("b", DONE), now_ms=5)
    assert store(envelopes, Envelope("a", FAILED), now_ms=500) == Envelope("a", DONE)
    store(envelopes, Envelope("c", DONE), now_ms=1_100)
    assert kept(envelopes, *"abc") == ["a", "c"]


def test_lowered_bound_is_reached_in_steps() -> None:
    """After the limit was lowered, each new envelope removes at most a hundred old ones."""
    envelopes = Envelopes(PLENTY)
    for number in range(250):
        store(envelopes, Envelope(f"job-{number}", DONE))
    lowered = Envelopes(EnvelopeRetention(age_ms=1_000, envelopes=20, bytes=1_000))
    lowered.restore(envelopes.image())
    sizes = []
    for number in range(4):
        store(lowered, Envelope(f"new-{number}", DONE))
        sizes.append(len(lowered))
    assert sizes == [151, 52, 20, 20]


def test_envelope_outlives_its_job() -> None:
    """With the same retention settings jobs go before their envelopes, by age and by number, in any order of ends."""
    retention = EnvelopeRetention.beyond(retain_ms=10_000, retain_jobs=400, retain_bytes=1 << 20)
    assert retention.age_ms >= 10_000 + 60_000, "clocks may differ by a minute"
    envelopes = Envelopes(retention)
    count, ahead = 3_000, 500
    # Envelopes are stored far ahead of the ends, and some jobs end long after their neighbours.
    ends = sorted(range(count), key=lambda number: number + (ahead if number % 7 == 0 else 0))
    stored = 0
    for position, ended in enumerate(ends, start=1):
        while stored < min(ended + ahead, count):
            store_quickly(envelopes, Envelope(f"job-{stored}", DONE), now_ms=stored)
            stored += 1
        oldest_kept = min(ends[max(0, position - 400) : position])
        assert envelopes.find(f"job-{oldest_kept}"), position
    assert len(envelopes) == retention.envelopes < count


def test_defaults_go_with_those_of_jobs() -> None:
    """By default, envelopes are kept longer than the retention of jobs requires."""
    kept = Settings()
    assert EnvelopeRetention.beyond() == EnvelopeRetention.beyond(
        retain_ms=kept.retain_ms,
        retain_failed_ms=kept.retain_failed_ms,
        retain_jobs=kept.retain_jobs,
        retain_bytes=kept.retain_bytes,
    )


def store_quickly(envelopes: Envelopes, envelope: Envelope, now_ms: int) -> None:
    envelopes.apply(envelopes.decide_store(envelope, now_ms).event)


def test_chunks_of_an_image_are_bounded() -> None:
    """Large outputs make more chunks of an image, not larger ones."""
    envelopes = Envelopes(PLENTY)
    for number in range(40):
        store_quickly(envelopes, Envelope(f"job-{number}", DONE, output=bytes(250_000)), now_ms=1)
    chunks = list(envelopes.image())
    assert len(chunks) > 2
    assert max(map(len, chunks)) < 5 << 20
    again = Envelopes(PLENTY)
    again.restore(chunks)
    assert list(again.image()) == chunks
    assert again.bytes_held == envelopes.bytes_held == 10_000_000


def test_events_are_written_as_ever() -> None:
    """The bytes of events and the digest are part of the format on disk, so that a change needs a new version."""
    envelopes = Envelopes(PLENTY)
    first, other = Envelope("a", DONE, 5, "s", b"o"), Envelope("b", DONE)
    events: list[EnvelopeEvent] = [Stored(7, first, 0), Confirmed(8, "a"), Filed(9, other, 0, 0)]
    stored, confirmed = "94010795a1610305a173c4016f00", "930208a161"
    assert [envelopes.encode(event).hex() for event in events[:2]] == [stored, confirmed]
    assert envelopes.encode(events[2]).hex() == "95030995a1620300a0c4000000"
    assert [envelopes.decode(envelopes.encode(event)) for event in events] == events
    for event in events[:2]:
        envelopes.apply(event)
    assert (envelopes.digest_version, envelopes.digest) == (2, 7154347768140579156)
    envelopes.rehash(1)
    assert (envelopes.digest_version, envelopes.digest) == (1, 8591594799633488286)


def test_strange_bytes_are_not_taken() -> None:
    """The state refuses an event and an image with unknown or modified bytes."""
    envelopes = Envelopes(PLENTY)
    store(envelopes, Envelope("a", DONE, output=b"out"))
    head, rows = envelopes.image()
    with pytest.raises(msgspec.ValidationError):
        envelopes.decode(b"\x93\x09\x07\xa1a")
    for chunks in ([], [rows], [head], [head, rows.replace(b"out", b"our")]):
        with pytest.raises(msgspec.ValidationError):
            Envelopes(PLENTY).restore(chunks)
