"""Refusals: limits, and invalid input."""

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
    """Input that is refused, without any other effect."""

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
        """A submission with an invalid template is refused as a whole."""
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
        """An invalid draft is refused with a stable reason and a message, and the other drafts are accepted."""
        submitted = await place.jobs.submit([place.template()], [JobDraft(), draft])
        assert [bool(job_id) for job_id in submitted.job_ids] == [True, False]
        assert (submitted.refusals[1].reason, bool(submitted.refusals[1].message)) == (reason, True)

    @pytest.mark.parametrize("count", [0, limits.BATCH_JOBS_MAX + 1])
    async def test_batch_of_no_size_or_too_large_is_refused(self, place: Workplace, count: int) -> None:
        """A submission without jobs or with more than the limit is refused."""
        with pytest.raises(InvalidArgumentError):
            await place.jobs.submit([place.template()], [JobDraft()] * count)

    async def test_largest_batch_is_accepted(self, place: Workplace) -> None:
        """A batch of exactly the limit is accepted."""
        assert len(await place.submit_many(limits.BATCH_JOBS_MAX)) == limits.BATCH_JOBS_MAX

    @needs(Capability.LARGE_PAYLOADS)
    async def test_largest_payload_is_accepted(self, place: Workplace) -> None:
        """A payload of exactly the limit is accepted, and reaches the worker completely."""
        await place.submit(b"x" * limits.PAYLOAD_BYTES_MAX)
        (lease,) = await (await place.worker()).take()
        assert len(lease.payload) == limits.PAYLOAD_BYTES_MAX

    async def test_cancel_with_too_long_a_reason_is_refused(self, place: Workplace) -> None:
        """A cancel with a reason above the limit is refused, and the job is unchanged."""
        job_id = await place.submit()
        with pytest.raises(InvalidArgumentError):
            await place.jobs.cancel(job_id, "x" * (limits.REASON_CHARS_MAX + 1))
        assert (await place.jobs.get(job_id)).state == QUEUED

    async def test_output_over_the_limit_fails_the_job(self, place: Workplace) -> None:
        """An output above the limit fails the job, and the summary and the explanation name the size and the limit."""
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
        """An output of exactly the limit is kept completely."""
        job_id = await place.run(await place.worker(), output=bytes(limits.OUTPUT_BYTES_MAX))
        assert len((await place.jobs.result(job_id)).output) == limits.OUTPUT_BYTES_MAX

    async def test_words_that_are_too_long_are_cut(self, place: Workplace) -> None:
        """A summary above its limit is cut, and the result is kept."""
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
        """A worker with an invalid name is refused when its session opens, or with the first directive."""
        with pytest.raises(InvalidArgumentError):
            await (await place.harness.work.open(introduction)).next()

    async def test_report_of_a_state_that_is_no_end_is_refused(self, place: Workplace) -> None:
        """A report of a state that is not terminal is refused, and may end the session."""
        job_id = await place.submit()
        hand = await place.worker()
        (lease,) = await hand.take()
        with pytest.raises(InvalidArgumentError):
            await hand.report(ReportRow(job_id, lease.token, QUEUED))
        assert (await place.jobs.get(job_id)).finished_ms == 0

    @pytest.mark.parametrize("size", [0, -1])
    async def test_part_of_no_size_is_refused(self, place: Workplace, size: int) -> None:
        """A search with a part size below one is refused."""
        with pytest.raises(InvalidArgumentError):
            await place.jobs.find(JobQuery(queue=place.queue), "", size)
