"""The state is the same from events, from a snapshot and in every process."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core import commands, digest_v2, events, image
from holdfast.core.events import AnyEvent, RefusedReport, Revocation
from holdfast.core.ledger import LedgerConfig
from holdfast.core.lifecycle import CANCELED, FAILED, QUEUED, RUNNING
from holdfast.core.model import FIXED, BackoffRule, Extra, JobRecord, NewJob, Note, QueueMode, Result, Template
from holdfast_lab.simulation.ledger_view import view_ledger
from tests.unit.core.ledger_driver import LedgerDriver

EVENTS: list[AnyEvent] = [
    events.Started(1, 7),
    events.Created(
        2,
        [Template("echo", "q", 9, 3, 2, 1_000, BackoffRule(FIXED, 5, 6), True)],
        [
            NewJob("a", 0, b"\x00\xff", 9, Extra("k", (("l", "v"),), (("h", "v"),), 1, 2, "old", "u")),
            NewJob("b", 0),
        ],
    ),
    events.Granted(3, "w1", 1_000, 1, ["a", "b"]),
    events.Extended(4, "w1", 1_000, [1, 2]),
    events.Revoked(5, "w1", "expired", [Revocation(1, QUEUED, True)]),
    events.Reported(6, "w1", [Result(2, FAILED, b"o", "s", "f", 3, 0)], [RefusedReport("a", 1, "STALE_TOKEN")]),
    events.CancelAccepted(7, "a", CANCELED, "enough"),
    events.Evicted(8, 2),
    events.QueueModeSet(9, "q", QueueMode.PAUSED, "why"),
    events.QueuedCanceled(10, ["a", "b"], "enough"),
    events.Noted(11, "w1", [Note("a", 1, 500, "half", ("one", "two")), Note("b", 2)]),
]


def eventful(driver: LedgerDriver) -> LedgerDriver:
    """Brings a desk into a state that contains every kind of data."""
    retried = Template("echo", priority=3, max_attempts=3, backoff=BackoffRule(FIXED, 500))
    driver.submit("a", "b", "c", payload=b"p", template=retried)
    driver.submit("d", not_before_ms=driver.log_ms + 10_000)
    driver.submit_keyed("e", "key-e", b"x")
    driver.submit_keyed("f", "key-f", b"y")
    driver.pass_ms(10)
    leases = {lease.job_id: lease.token for lease in driver.lease(4)}
    driver.report("a", leases["a"], FAILED, failure_reason="flaky")
    driver.cancel("b", "while running")
    assert driver.report("e", leases["e"], output=b"out", summary="fine") == ""
    driver.cancel("f", "while queued")
    driver.report("c", 999)
    driver.submit_unique("g", "u")
    driver.set_mode("default", QueueMode.DRAINING, "moving")
    driver.set_mode("q2", QueueMode.PAUSED)
    driver.note(Note("b", leases["b"], 10, "said", ("line",)))
    driver.submit("h", "i", template=Template("echo", "q2"))
    driver.cancel_queued("h")
    driver.lease(1, worker="w2")
    driver.revoke("w2", reason="released")
    driver.evict(retain_jobs=1)
    return driver


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_survives_its_encoding(event: AnyEvent) -> None:
    """Every kind of event, with every field set, decodes to what was encoded."""
    assert events.decode(events.join([events.encode_one(event)])) == [event]


def test_body_holds_many_events_in_order() -> None:
    """The body of a frame is a list of events, in order, and may be empty."""
    body = events.join([events.encode_one(event) for event in EVENTS])
    assert events.decode(body) == EVENTS
    assert events.decode(events.join([])) == []


@pytest.mark.parametrize("raw", [[[99, 1]], [[1]], [[1, "soon", 1]], [["Started", 1, 1]], 7])
def test_image_that_no_version_wrote_is_refused(raw: object) -> None:
    """Unknown tags, missing fields and wrong types do not decode."""
    with pytest.raises(msgspec.ValidationError):
        events.decode(msgspec.msgpack.encode(raw))


def test_fields_added_later_are_ignored_by_this_version() -> None:
    """An event with an additional field at its end decodes without that field."""
    assert events.decode(msgspec.msgpack.encode([[1, 5, 7, "p", "from the future"]])) == [events.Started(5, 7, "p")]


def test_replay_gives_the_live_state(driver: LedgerDriver) -> None:
    """Applying all events to an empty ledger gives a ledger with the same values."""
    replayed = eventful(driver).replayed()
    assert view_ledger(replayed) == view_ledger(driver.ledger)
    assert (replayed.digest, replayed.position) == (driver.ledger.digest, driver.ledger.position)
    assert image.full_digest(replayed) == image.full_digest(driver.ledger)


def test_image_gives_the_live_state(driver: LedgerDriver) -> None:
    """Loading a dump gives a ledger with the same values, which dumps to the same bytes."""
    loaded = eventful(driver).reloaded()
    assert view_ledger(loaded) == view_ledger(driver.ledger)
    assert (loaded.digest, loaded.position) == (driver.ledger.digest, driver.ledger.position)
    assert list(image.dump(loaded)) == list(image.dump(driver.ledger))
    loaded.state.audit()


def test_image_and_tail_give_the_live_state(driver: LedgerDriver) -> None:
    """A snapshot at any position plus the events after it gives the same state."""
    eventful(driver)
    whole = image.full_digest(driver.ledger)
    prefix = LedgerDriver()
    for position in range(len(driver.bodies) + 1):
        loaded = prefix.reloaded()
        for body in driver.bodies[position:]:
            for event in events.decode(body):
                loaded.apply(event)
        assert image.full_digest(loaded) == whole
        if position < len(driver.bodies):
            prefix.take(events.decode(driver.bodies[position])[0])


def test_loaded_ledger_goes_on_like_the_live_one(driver: LedgerDriver) -> None:
    """After a restart from a snapshot the ledger grants the same jobs, in the same order."""
    eventful(driver)
    driver.pass_ms(20_000)
    command = commands.GrantLeases("w9", frozenset({"echo"}), frozenset(), 9, 1_000)
    decided = [ledger.decide(command, driver.now) for ledger in (driver.ledger, driver.replayed(), driver.reloaded())]
    assert decided[0] == decided[1] == decided[2]
    assert len(driver.do(command)) > 1


def test_empty_ledger_has_an_image(driver: LedgerDriver) -> None:
    """The image of an empty ledger loads as an empty ledger."""
    assert view_ledger(driver.reloaded()) == view_ledger(driver.ledger)


def test_image_of_a_version_without_modes_loads(driver: LedgerDriver) -> None:
    """An image without the parts that were added later loads as if those parts were empty."""
    driver.submit("a", "b")
    driver.run_one()
    chunks = [msgspec.msgpack.decode(chunk) for chunk in image.dump(driver.ledger)]
    assert {len(chunk) for chunk in chunks} == {7}
    loaded = image.load([msgspec.msgpack.encode(chunk[:5]) for chunk in chunks], driver.config)
    assert view_ledger(loaded) == view_ledger(driver.ledger)


def test_image_without_its_head_is_refused(driver: LedgerDriver) -> None:
    """An image without a head does not load."""
    with pytest.raises(msgspec.ValidationError):
        image.load([], driver.config)


def test_image_that_misses_a_chunk_is_refused(driver: LedgerDriver) -> None:
    """An image whose jobs do not match the digest in its head does not load."""
    head, *_ = image.dump(eventful(driver).ledger)
    with pytest.raises(msgspec.ValidationError, match="does not match its digest"):
        image.load([head], driver.config)


def test_loading_without_a_proof_hashes_no_job(driver: LedgerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start takes the digest from the image's head, and hashes a job only when the job changes: before and after."""
    driver.submit("a", "b")
    chunks = list(image.dump(driver.ledger))
    original, hashed = digest_v2.job, list[str]()

    def term(job: JobRecord, /) -> int:
        hashed.append(job.id)
        return original(job)

    monkeypatch.setattr(digest_v2, "job", term)
    loaded = image.load(chunks, driver.config, proves_digest=False)
    assert hashed == []
    assert loaded.digest == driver.ledger.digest
    driver.restart(loaded)
    driver.lease(1)
    assert hashed == ["a", "a"]
    assert driver.replayed().digest == loaded.digest
    driver.check()


def test_rows_of_an_image_are_decoded_as_jobs() -> None:
    """The fields of a job begin with the fields of an image row, in the same order, so that no row is copied."""
    row = image.JobRow.__struct_fields__
    assert JobRecord.__struct_fields__[: len(row)] == row


def test_loading_an_image_reports_no_changes(driver: LedgerDriver) -> None:
    """Loading an image records no moves of jobs in the state."""
    loaded = eventful(driver).reloaded()
    assert loaded.state.jobs
    assert loaded.state.moves == []


def test_jobs_of_an_image_share_their_templates(driver: LedgerDriver) -> None:
    """Equal templates of several chunks are one object after loading."""
    for number in range(6):
        driver.submit(f"{number}", payload=bytes(1024 * 1024))
    assert len(list(image.dump(driver.ledger))) > 2
    loaded = driver.reloaded()
    assert len({id(job.template) for job in loaded.state.jobs.values()}) == 1


@pytest.mark.parametrize("template", [7, [["echo"]], None])
def test_image_with_a_template_that_it_does_not_have_is_refused(driver: LedgerDriver, template: object) -> None:
    """An image in which a row names its template other than by an index of its chunk does not load."""
    driver.submit("a")
    head, jobs = map(msgspec.msgpack.decode, image.dump(driver.ledger))
    jobs[2][0][1] = template
    with pytest.raises(msgspec.ValidationError):
        image.load(map(msgspec.msgpack.encode, (head, jobs)), driver.config)


def test_image_that_has_a_job_twice_is_refused(driver: LedgerDriver) -> None:
    """An image with the same job id twice does not load."""
    driver.submit("a")
    head, jobs = image.dump(driver.ledger)
    with pytest.raises(msgspec.ValidationError, match="a job id twice"):
        image.load([head, jobs, jobs], driver.config)


def test_chunks_of_an_image_are_bounded_in_bytes(driver: LedgerDriver) -> None:
    """Large payloads are spread over several chunks, so that no chunk needs more memory than a batch."""
    for number in range(20):
        driver.submit(f"{number}", payload=bytes(1024 * 1024))
    assert max(map(len, image.dump(driver.ledger))) < 6 * 1024 * 1024
    assert image.full_digest(driver.reloaded()) == image.full_digest(driver.ledger)


def test_digest_changes_with_every_transition(driver: LedgerDriver) -> None:
    """Every transition of a job changes the digest, and evicting all jobs makes it zero."""
    seen = {driver.ledger.digest}
    driver.submit("a", template=Template("echo", max_attempts=2, backoff=BackoffRule(FIXED, 0)))
    seen.add(driver.ledger.digest)
    for state in (FAILED, FAILED):
        lease = driver.run_one()
        seen.add(driver.ledger.digest)
        driver.report("a", lease.token, state)
        seen.add(driver.ledger.digest)
    assert len(seen) == 6
    driver.evict(retain_failed_ms=0)
    assert driver.ledger.digest == 0


def test_refused_reports_leave_the_digest_alone(driver: LedgerDriver) -> None:
    """A refused report does not change the digest, because it is history and not state."""
    driver.submit("a")
    digest = driver.ledger.digest
    driver.report("a", 77)
    assert driver.ledger.digest == digest
    assert driver.job("a").state == QUEUED != RUNNING


SCRIPT = """
import sys
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1]]
from tests.unit.core.ledger_driver import LedgerDriver
from tests.unit.core.test_image import eventful
from holdfast.core import image
desk = eventful(LedgerDriver())
print(desk.ledger.digest, image.full_digest(desk.ledger), image.full_digest(desk.reloaded()))
"""


def test_digests_do_not_depend_on_the_hash_seed(root: Path) -> None:
    """Processes with different hash seeds agree on every decision, the digest and the image."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(root)],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1


def test_log_time_never_goes_back(driver: LedgerDriver) -> None:
    """A command or event with a time before the last one is a bug and raises an AssertionError."""
    driver.submit("a")
    with pytest.raises(AssertionError, match="log time"):
        driver.ledger.apply(events.Started(driver.log_ms - 1, 1))
    driver.log_ms -= 1
    with pytest.raises(AssertionError, match="log time"):
        driver.expire()
    driver.log_ms += 1


def test_replay_does_not_depend_on_settings(driver: LedgerDriver) -> None:
    """A replay with another aging gives the same state, because events store what was decided."""
    eventful(driver)
    whole = image.full_digest(driver.ledger)
    driver.config = LedgerConfig(aging_ms=0)
    assert image.full_digest(driver.replayed()) == whole
