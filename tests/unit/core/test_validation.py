"""Validation of submits: every limit at its edge, and hostile names."""

from collections.abc import Callable

import msgspec
import pytest

from holdfast import limits
from holdfast.core import commands
from holdfast.core.commands import Refusal
from holdfast.core.model import BackoffRule, Extra, NewJob, Template
from holdfast.core.validation import check_extra, check_job, check_reason, check_template
from holdfast.errors import Code
from tests.unit.core.ledger_driver import LedgerDriver

HOSTILE = [
    "a\0b",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "a\r\nSet-Cookie: x",
    "\u202egnp.exe",
    "a\ud800b",
    "\udcff",
    "a b",
    "\u00e9",
    "\u2028",
    "",
]
UNPRINTABLE = ["a\0b", "a\r\nb", "\u202egnp.exe", "a\ud800b", "\u2028"]
UNWRITABLE = ["a\ud800b", "\udcff", "\ud83d"]
NOW_MS = 1_000

Check = Callable[[int], Refusal | None]


def _options(field: str) -> Check:
    return lambda value: check_template(msgspec.structs.replace(Template("echo"), **{field: value}))


def _job(**fields: object) -> Refusal | None:
    return check_job(NewJob("a", 0, **fields), 1, NOW_MS)  # type: ignore[arg-type]


def _pairs(count: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"k{n}", "v") for n in range(count))


UPPER: dict[str, tuple[int, Check]] = {
    "priority": (limits.PRIORITY_MAX, _options("priority")),
    "max_attempts": (limits.ATTEMPTS_MAX, _options("max_attempts")),
    "max_losses": (limits.LOSSES_MAX, _options("max_losses")),
    "timeout_ms": (limits.TIMEOUT_MS_MAX, _options("timeout_ms")),
    "backoff base": (limits.BACKOFF_MS_MAX, lambda n: check_template(Template("e", backoff=BackoffRule(0, n)))),
    "backoff cap": (limits.BACKOFF_MS_MAX, lambda n: check_template(Template("e", backoff=BackoffRule(0, 0, n)))),
    "backoff kind": (2, lambda n: check_template(Template("e", backoff=BackoffRule(n)))),
    "type": (limits.TYPE_CHARS_MAX, lambda n: check_template(Template("x" * n))),
    "simulated type": (
        limits.TYPE_CHARS_MAX,
        lambda n: check_template(Template("\u00e9" * n, simulated=True)),
    ),
    "queue": (limits.NAME_CHARS_MAX, lambda n: check_template(Template("e", queue="q" * n))),
    "payload": (limits.PAYLOAD_BYTES_MAX, lambda n: _job(payload=b"x" * n)),
    "delay": (NOW_MS + limits.DELAY_MS_MAX, lambda n: _job(not_before_ms=n)),
    "job id": (limits.JOB_ID_CHARS_MAX, lambda n: check_job(NewJob("x" * n, 0), 1, NOW_MS)),
    "template index": (0, lambda n: check_job(NewJob("a", n), 1, NOW_MS)),
    "request id": (limits.REQUEST_ID_CHARS_MAX, lambda n: check_extra(Extra(request_id="k" * n))),
    "retry_of": (limits.JOB_ID_CHARS_MAX, lambda n: check_extra(Extra(retry_of="k" * n))),
    "labels": (limits.LABELS_MAX, lambda n: check_extra(Extra(labels=_pairs(n)))),
    "headers": (limits.HEADERS_MAX, lambda n: check_extra(Extra(headers=_pairs(n)))),
    "label key": (limits.LABEL_KEY_CHARS_MAX, lambda n: check_extra(Extra(labels=(("k" * n, ""),)))),
    "label value": (limits.LABEL_VALUE_CHARS_MAX, lambda n: check_extra(Extra(labels=(("k", "v" * n),)))),
    "header value": (limits.HEADER_VALUE_CHARS_MAX, lambda n: check_extra(Extra(headers=(("k", "v" * n),)))),
    "work_duration_ms": (2**63 - 1, lambda n: check_extra(Extra(work_duration_ms=n))),
    "payload_size_bytes": (2**63 - 1, lambda n: check_extra(Extra(payload_size_bytes=n))),
    "cancel reason": (limits.REASON_CHARS_MAX, lambda n: check_reason("r" * n)),
}
LOWER: dict[str, tuple[int, Check]] = {
    "priority": (limits.PRIORITY_MIN, _options("priority")),
    "max_attempts": (1, _options("max_attempts")),
    "max_losses": (0, _options("max_losses")),
    "timeout_ms": (0, _options("timeout_ms")),
    "backoff base": (0, UPPER["backoff base"][1]),
    "backoff cap": (0, UPPER["backoff cap"][1]),
    "backoff kind": (0, UPPER["backoff kind"][1]),
    "type": (1, UPPER["type"][1]),
    "queue": (1, UPPER["queue"][1]),
    "delay": (0, UPPER["delay"][1]),
    "job id": (1, UPPER["job id"][1]),
    "template index": (0, UPPER["template index"][1]),
    "label key": (1, UPPER["label key"][1]),
    "work_duration_ms": (0, UPPER["work_duration_ms"][1]),
    "payload_size_bytes": (0, UPPER["payload_size_bytes"][1]),
}


@pytest.mark.parametrize("what", UPPER)
def test_upper_limit_is_exact(what: str) -> None:
    """One below the limit and the limit pass, but one above is refused as an invalid argument."""
    limit, check = UPPER[what]
    assert limit == 0 or check(max(limit - 1, 1 if what == "max_attempts" else 0)) is None
    assert check(limit) is None
    refusal = check(limit + 1)
    assert refusal is not None
    assert refusal.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("what", LOWER)
def test_lower_limit_is_exact(what: str) -> None:
    """The smallest value passes, but one below is refused as an invalid argument."""
    limit, check = LOWER[what]
    assert check(limit) is None
    refusal = check(limit - 1)
    assert refusal is not None
    assert refusal.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("make", [Template, lambda name: Template("e", queue=name)])
def test_hostile_names_are_refused_and_shown_harmlessly(name: str, make: Callable[[str], Template]) -> None:
    """Hostile types and queues are refused with a message of one printable line in valid UTF-8."""
    refusal = check_template(make(name))
    assert refusal is not None
    assert refusal.message.isprintable()
    assert len(refusal.message.encode()) < 400


@pytest.mark.parametrize("text", UNPRINTABLE)
def test_text_that_cannot_be_printed_on_a_line_is_refused(text: str) -> None:
    """Types of the frozen contract, request ids, job ids and names of labels must be printable text."""
    refusals = [
        check_template(Template(text, simulated=True)),
        check_extra(Extra(request_id=text)),
        check_extra(Extra(retry_of=text)),
        check_extra(Extra(labels=((text, ""),))),
        check_extra(Extra(headers=((text, ""),))),
        check_job(NewJob(text, 0), 1, NOW_MS),
    ]
    for refusal in refusals:
        assert refusal is not None
        assert refusal.message.encode().decode().isprintable()


@pytest.mark.parametrize("text", UNWRITABLE)
def test_lone_surrogates_are_refused_everywhere(driver: LedgerDriver, text: str) -> None:
    """Text that UTF-8 cannot encode never reaches the journal, whichever field it is in."""
    extras = [
        Extra(request_id=text),
        Extra(retry_of=text),
        Extra(labels=(("k", text),)),
        Extra(labels=((text, "v"),)),
        Extra(headers=(("k", text),)),
        Extra(headers=((text, "v"),)),
    ]
    for number, extra in enumerate(extras):
        reply = driver.submit(f"job-{number}", extra=extra)
        assert reply.refusals[0].code is Code.INVALID_ARGUMENT
        reply.refusals[0].message.encode()
    assert set(driver.submit(text).refusals) == {0}
    for template in (Template(text), Template(text, simulated=True), Template("e", queue=text)):
        assert isinstance(driver.do(commands.Submit([template], [NewJob("a", 0)])), Refusal)
    driver.submit("b")
    assert driver.cancel("b", text).reason == "REASON_INVALID"
    assert isinstance(driver.cancel(text), Refusal)
    assert driver.ledger.position == 1


@pytest.mark.parametrize("value", ["<b>", "a\r\nb", "\0", "\u202e", "\u00e9\U0001f600", ""])
def test_values_of_labels_are_any_text(driver: LedgerDriver, value: str) -> None:
    """The value of a label may be any text, and is stored unchanged."""
    driver.submit("a", extra=Extra(labels=(("k", value),)))
    extra = driver.replayed().state.jobs["a"].extra
    assert extra is not None
    assert extra.labels == (("k", value),)


@pytest.mark.parametrize("count", [0, limits.BATCH_JOBS_MAX + 1])
def test_batch_of_a_wrong_size_is_refused_whole(driver: LedgerDriver, count: int) -> None:
    """A submit has at least one job and at most a thousand."""
    jobs = [NewJob(f"{n}", 0) for n in range(count)]
    assert driver.do(commands.Submit([Template("echo")], jobs)).reason == "BATCH_SIZE_INVALID"


def test_batch_of_the_largest_size_is_accepted(driver: LedgerDriver) -> None:
    """A submit of a thousand jobs is one event."""
    assert len(driver.submit(*map(str, range(limits.BATCH_JOBS_MAX))).job_ids) == limits.BATCH_JOBS_MAX
    assert driver.ledger.position == 1


@pytest.mark.parametrize(("over", "is_accepted"), [(-1, True), (0, True), (1, False)])
def test_bytes_of_a_batch_are_limited_exactly(driver: LedgerDriver, over: int, *, is_accepted: bool) -> None:
    """The payloads of a batch have at most four mebibytes together."""
    part = limits.BATCH_BYTES_MAX // 8
    jobs = [NewJob(f"{n}", 0, bytes(part)) for n in range(7)] + [NewJob("7", 0, bytes(part + over))]
    reply = driver.do(commands.Submit([Template("echo")], jobs))
    assert isinstance(reply, Refusal) != is_accepted


def test_one_bad_job_does_not_spoil_its_batch(driver: LedgerDriver) -> None:
    """The ledger judges the jobs of a batch one by one, and each refusal names its index."""
    jobs = [NewJob("a", 0), NewJob("b", 7), NewJob("c", 0)]
    reply = driver.do(commands.Submit([Template("echo")], jobs))
    assert (reply.job_ids, set(reply.refusals)) == (["a", "", "c"], {1})


def test_one_bad_template_refuses_the_submission(driver: LedgerDriver) -> None:
    """A submit with an invalid template is refused as a whole, and stores nothing."""
    bad = Template("echo", priority=10)
    for _ in range(2):
        refusal = driver.do(commands.Submit([Template("echo"), bad], [NewJob("a", 0)]))
        assert refusal.reason == "OPTION_OUT_OF_RANGE"
    assert driver.ledger.position == 0


def test_submits_are_refused_when_too_many_jobs_are_held(driver: LedgerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of held jobs submits are refused as retryable, until a job is evicted."""
    monkeypatch.setattr(limits, "JOBS_HELD_MAX", 2)
    driver.submit("a", "b")
    refusal = driver.do(commands.Submit([Template("echo")], [NewJob("c", 0)]))
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_JOBS")
    driver.finish("a")
    driver.evict(0)
    assert driver.submit("c").job_ids == ["c"]


def test_submits_are_refused_when_too_many_bytes_are_held() -> None:
    """Above the limit of held bytes submits are refused until jobs are evicted."""
    driver = LedgerDriver(memory_bytes=1_000)
    driver.submit("a", payload=b"x" * 1_000)
    refusal = driver.do(commands.Submit([Template("echo")], [NewJob("b", 0)]))
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_BYTES")
    assert f"{driver.ledger.state.bytes_held:,}" in refusal.message
    assert "1,000" in refusal.message
    driver.finish("a")
    driver.evict(0)
    assert driver.submit("b").job_ids == ["b"]
