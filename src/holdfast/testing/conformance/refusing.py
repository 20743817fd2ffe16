"""Refusing: limits, and input that cannot be right."""

from typing import Any

import pytest

from holdfast import limits
from holdfast.core.capabilities import Capability
from holdfast.core.commands import ReportRow
from holdfast.core.lifecycle import DONE, FAILED, QUEUED
from holdfast.core.model import BackoffRule, Extra
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Introduction, JobDraft, JobQuery
from holdfast.testing.conformance.harness import needs
from holdfast.testing.conformance.workplace import Workplace


class TestRefusing:
    """What is refused, and that nothing else happens then."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"type": ""},
            {"type": "a b"},
            {"type": "x" * 129},
            {"queue": "../etc"},
            {"priority": 10},
            {"priority": -1},
            {"max_attempts": 1 << 40},
            {"max_attempts": 101},
            {"max_losses": 101},
            {"timeout_ms": limits.TIMEOUT_MS_MAX + 1},
            {"backoff": BackoffRule(0, limits.BACKOFF_MS_MAX + 1, 1)},
        ],
        ids=str,
    )
    async def test_template_that_cannot_be_right_is_refused(self, place: Workplace, fields: dict[str, Any]) -> None:
        """Nothing of a submission with a bad template is accepted."""
        with pytest.raises(InvalidArgumentError):
            await place.submit_draft(JobDraft(), **fields)

    @pytest.mark.parametrize(
        ("draft", "reason"),
        [
            (JobDraft(template=1), "TEMPLATE_INDEX_INVALID"),
            (JobDraft(payload=bytes(limits.PAYLOAD_BYTES_MAX + 1)), "PAYLOAD_TOO_LARGE"),
            (JobDraft(delay_ms=limits.DELAY_MS_MAX + 60_000), "DELAY_TOO_LONG"),
            (JobDraft(extra=Extra(request_id="x" * 257)), "REQUEST_ID_TOO_LONG"),
            (JobDraft(extra=Extra(request_id="a\nb")), "REQUEST_ID_INVALID"),
            (JobDraft(extra=Extra(labels=(("", "x"),))), "LABEL_KEY_INVALID"),
            (JobDraft(extra=Extra(labels=tuple((str(n), "") for n in range(65)))), "LABELS_TOO_MANY"),
            (JobDraft(extra=Extra(labels=(("a", "x" * 1_025),))), "LABEL_VALUE_TOO_LONG"),
            (JobDraft(extra=Extra(headers=(("a", "x" * 1_025),))), "LABEL_VALUE_TOO_LONG"),
        ],
        ids=lambda value: value if isinstance(value, str) else "draft",
    )
    async def test_draft_that_cannot_be_right_is_refused(self, place: Workplace, draft: JobDraft, reason: str) -> None:
        """It is refused by itself, for a stable reason, with a sentence."""
        submitted = await place.jobs.submit([place.template()], [JobDraft(), draft])
        assert [bool(job_id) for job_id in submitted.job_ids] == [True, False]
        assert (submitted.refusals[1].reason, bool(submitted.refusals[1].message)) == (reason, True)

    @pytest.mark.parametrize("count", [0, limits.BATCH_JOBS_MAX + 1])
    async def test_batch_of_no_size_or_too_large_is_refused(self, place: Workplace, count: int) -> None:
        """A submission has from one job up to the limit."""
        with pytest.raises(InvalidArgumentError):
            await place.jobs.submit([place.template()], [JobDraft()] * count)

    async def test_largest_batch_is_accepted(self, place: Workplace) -> None:
        """The limit itself is allowed."""
        assert len(await place.submit_many(limits.BATCH_JOBS_MAX)) == limits.BATCH_JOBS_MAX

    @needs(Capability.LARGE_PAYLOADS)
    async def test_largest_payload_is_accepted(self, place: Workplace) -> None:
        """The limit itself is allowed, and reaches the worker whole."""
        await place.submit(b"x" * limits.PAYLOAD_BYTES_MAX)
        (lease,) = await (await place.worker()).take()
        assert len(lease.payload) == limits.PAYLOAD_BYTES_MAX

    async def test_cancel_with_too_long_a_reason_is_refused(self, place: Workplace) -> None:
        """The job stays as it was."""
        job_id = await place.submit()
        with pytest.raises(InvalidArgumentError):
            await place.jobs.cancel(job_id, "x" * (limits.REASON_CHARS_MAX + 1))
        assert (await place.jobs.get(job_id)).state == QUEUED

    async def test_output_over_the_limit_fails_the_job(self, place: Workplace) -> None:
        """It is not cut and not lost in silence; the summary and `why` name the size and the limit."""
        job_id = await place.submit(max_attempts=3)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.done(lease, bytes(limits.OUTPUT_BYTES_MAX + 1))
        job = await place.jobs.get(job_id)
        assert (job.state, job.failure_reason) == (FAILED, "OUTPUT_TOO_LARGE")
        for words in ((await place.jobs.result(job_id)).summary, (await place.jobs.explain(job_id)).sentence):
            assert "OUTPUT_TOO_LARGE" in words
            assert str(limits.OUTPUT_BYTES_MAX) in words
            assert str(limits.OUTPUT_BYTES_MAX + 1) in words

    async def test_largest_output_is_kept_whole(self, place: Workplace) -> None:
        """The limit itself is allowed."""
        job_id = await place.run(await place.worker(), output=bytes(limits.OUTPUT_BYTES_MAX))
        assert len((await place.jobs.result(job_id)).output) == limits.OUTPUT_BYTES_MAX

    async def test_words_that_are_too_long_are_cut(self, place: Workplace) -> None:
        """A summary over its limit does not cost the result."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.report(ReportRow(job_id, lease.token, DONE, summary="x" * 5_000))
        result = await place.jobs.result(job_id)
        assert (result.state, len(result.summary)) == (DONE, limits.SUMMARY_CHARS_MAX)

    @pytest.mark.parametrize(
        "introduction",
        [
            Introduction("", frozenset({"a"})),
            Introduction("a b", frozenset({"a"})),
            Introduction("w" * 129, frozenset({"a"})),
            Introduction("w", frozenset({"../x"})),
            Introduction("w", frozenset({"a"}), frozenset({""})),
        ],
        ids=["no-id", "blank", "long", "type", "queue"],
    )
    async def test_worker_with_a_bad_name_is_not_welcome(self, place: Workplace, introduction: Introduction) -> None:
        """It is told so when it says hello, or with the first directive."""
        with pytest.raises(InvalidArgumentError):
            await (await place.harness.work.open(introduction)).next()

    async def test_report_of_a_state_that_is_no_end_is_refused(self, place: Workplace) -> None:
        """A worker cannot put a job back into the queue by its report; the session may end over it."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        with pytest.raises(InvalidArgumentError):
            await hand.report(ReportRow(job_id, lease.token, QUEUED))
        assert (await place.jobs.get(job_id)).finished_ms == 0

    @pytest.mark.parametrize("size", [0, -1])
    async def test_part_of_no_size_is_refused(self, place: Workplace, size: int) -> None:
        """A search is asked for at least one job at a time."""
        with pytest.raises(InvalidArgumentError):
            await place.jobs.find(JobQuery(queue=place.queue), "", size)
