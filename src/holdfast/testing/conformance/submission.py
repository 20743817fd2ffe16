"""Submission: an accepted job is stored, and a repeated submission makes no second job."""

import uuid

from holdfast.core.lifecycle import QUEUED
from holdfast.core.model import FIXED, BackoffRule, Extra
from holdfast.errors import Code
from holdfast.ports import JobDraft
from holdfast.testing.conformance.workplace import Workplace, accepted


class TestSubmitting:
    """New jobs, and repeated submissions."""

    async def test_accepted_job_is_there_as_it_was_submitted(self, place: Workplace) -> None:
        """Template, labels, headers and payload come back unchanged, and the job is queued."""
        extra = Extra(labels=(("colour", "blue"),), headers=(("traceparent", "00-1"),))
        fields = {"priority": 7, "max_attempts": 4, "max_losses": 2, "timeout_ms": 9_000}
        backoff = BackoffRule(FIXED, 5, 10)
        job_id = await place.submit(b"\x00\xff{}", extra=extra, backoff=backoff, **fields)
        job = await place.jobs.get(job_id)
        assert (job.id, job.state, job.template) == (job_id, QUEUED, place.template(backoff=backoff, **fields))
        assert job.extra == extra
        assert await place.jobs.payload(job_id) == b"\x00\xff{}"

    async def test_every_job_of_a_batch_has_its_own_id_in_order(self, place: Workplace) -> None:
        """The ids of a batch are unique and in the order of the drafts."""
        ids = await place.submit_many(20)
        assert len(set(ids)) == 20
        assert [await place.jobs.payload(job_id) for job_id in ids] == [str(number).encode() for number in range(20)]

    async def test_jobs_of_a_batch_may_have_different_templates(self, place: Workplace) -> None:
        """Each draft names its template by its index."""
        templates = [place.template(priority=1), place.template(priority=2)]
        ids = accepted(await place.jobs.submit(templates, [JobDraft(template=1), JobDraft(template=0)]))
        assert [(await place.jobs.get(job_id)).template.priority for job_id in ids] == [2, 1]

    async def test_id_made_by_the_client_is_kept(self, place: Workplace) -> None:
        """A job that is submitted with an id has that id."""
        job_id = str(uuid.uuid4())
        submitted = await place.submit_draft(JobDraft(id=job_id))
        assert (submitted.job_ids, submitted.existing) == ([job_id], frozenset())
        assert (await place.jobs.get(job_id)).state == QUEUED

    async def test_repeated_id_finds_the_first_job(self, place: Workplace) -> None:
        """The same submission under the same id makes one job, and the second answer marks it as existing."""
        draft = JobDraft(id=str(uuid.uuid4()), payload=b"same")
        await place.submit_draft(draft)
        again = await place.submit_draft(draft)
        assert (again.job_ids, again.existing, again.refusals) == ([draft.id], frozenset({0}), {})

    async def test_repeated_id_with_another_payload_is_refused(self, place: Workplace) -> None:
        """Another payload under a used id is refused, and changes nothing."""
        job_id = str(uuid.uuid4())
        await place.submit_draft(JobDraft(id=job_id, payload=b"one"))
        again = await place.submit_draft(JobDraft(id=job_id, payload=b"two"))
        assert (again.job_ids, again.refusals[0].reason) == ([""], "JOB_ID_REUSED")
        assert again.refusals[0].code == Code.FAILED_PRECONDITION
        assert await place.jobs.payload(job_id) == b"one"

    async def test_repeated_id_finds_a_job_that_has_ended(self, place: Workplace) -> None:
        """A late repetition of a submission does not run the job again."""
        draft = JobDraft(id=str(uuid.uuid4()))
        await place.submit_draft(draft)
        hand = await place.worker()
        (lease,) = await hand.take()
        await hand.done(lease)
        assert (await place.submit_draft(draft)).existing == {0}
        await hand.session.want(1)
        assert await hand.rest() == []

    async def test_repeated_request_id_finds_the_first_job(self, place: Workplace) -> None:
        """A submission under the same request id makes one job."""
        draft = JobDraft(payload=b"same", extra=Extra(request_id=place.name("request")))
        first = await place.submit_draft(draft)
        again = await place.submit_draft(draft)
        assert (again.job_ids, again.existing) == (first.job_ids, frozenset({0}))

    async def test_request_id_with_another_payload_is_refused(self, place: Workplace) -> None:
        """Another payload under a used request id is refused."""
        extra = Extra(request_id=place.name("request"))
        await place.submit_draft(JobDraft(payload=b"one", extra=extra))
        again = await place.submit_draft(JobDraft(payload=b"two", extra=extra))
        assert again.job_ids == [""]
        assert (again.refusals[0].code, again.refusals[0].reason) == (Code.FAILED_PRECONDITION, "REQUEST_ID_REUSED")

    async def test_request_id_twice_in_one_batch_makes_one_job(self, place: Workplace) -> None:
        """Two drafts with the same request id in one batch share one job."""
        draft = JobDraft(extra=Extra(request_id=place.name("request")))
        submitted = await place.jobs.submit([place.template()], [draft, draft])
        assert submitted.job_ids[0] == submitted.job_ids[1] != ""
        assert submitted.existing == {1}

    async def test_unique_key_finds_the_job_that_has_not_ended(self, place: Workplace) -> None:
        """While a job with a unique key waits, a submission under that key finds it, whatever its payload."""
        extra = Extra(unique_key="only-one")
        first = await place.submit_draft(JobDraft(payload=b"one", extra=extra))
        again = await place.submit_draft(JobDraft(payload=b"two", extra=extra))
        assert (again.job_ids, again.existing) == (first.job_ids, frozenset({0}))

    async def test_unique_key_holds_while_the_job_runs(self, place: Workplace) -> None:
        """A submission under the unique key of a running job finds that job."""
        extra = Extra(unique_key="only-one")
        first = await place.submit(extra=extra)
        await (await place.worker()).take()
        assert (await place.submit_draft(JobDraft(extra=extra))).job_ids == [first]

    async def test_unique_key_is_free_once_the_job_has_ended(self, place: Workplace) -> None:
        """After the job has ended, for example by a cancel, a submission under its unique key makes a new job."""
        extra = Extra(unique_key="only-one")
        first = await place.submit(extra=extra)
        await place.jobs.cancel(first, "")
        second = await place.submit(extra=extra)
        assert second != first

    async def test_unique_keys_of_different_types_do_not_meet(self, place: Workplace) -> None:
        """The same unique key in two types makes two jobs."""
        extra = Extra(unique_key="only-one")
        assert await place.submit(extra=extra) != await place.submit(extra=extra, type=place.name("other"))

    async def test_refused_draft_does_not_hold_back_the_others(self, place: Workplace) -> None:
        """A batch is accepted and refused job by job."""
        good, bad = JobDraft(payload=b"good"), JobDraft(template=9)
        submitted = await place.jobs.submit([place.template()], [good, bad, good])
        assert [bool(job_id) for job_id in submitted.job_ids] == [True, False, True]
        assert list(submitted.refusals) == [1]

    async def test_answer_dates_the_jobs(self, place: Workplace) -> None:
        """The time in the answer is the creation time of the jobs."""
        submitted = await place.submit_draft(JobDraft())
        assert (await place.jobs.get(submitted.job_ids[0])).created_ms == submitted.at_ms
