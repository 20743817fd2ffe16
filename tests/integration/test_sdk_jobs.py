"""The SDK over a ledger in memory and over a directory of this process: the same behaviour."""

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast import (
    Backoff,
    Holdfast,
    Job,
    JobCanceledError,
    JobFailedError,
    NotFoundError,
    PermanentError,
    ResultTimeoutError,
    Retry,
    State,
    SubmitManyError,
    UnavailableError,
    current,
    limits,
)
from holdfast.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from tests.e2e.wait_until import eventually

WAIT_S = 30


@dataclass
class Size:
    """A value that is sent as an argument."""

    width: int
    height: int


@pytest.fixture(params=["memory://", "directory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    url = str(tmp_path / "jobs") if request.param == "directory" else request.param
    with Holdfast(url) as opened:
        yield opened


def test_call_runs_as_a_job_and_still_as_a_call(app: Holdfast) -> None:
    """A job function can be called directly, or submitted and waited for."""

    @app.job
    def double(size: Size, times: int = 2) -> Size:
        return Size(size.width * times, size.height * times)

    assert double(Size(1, 2)) == Size(2, 4)
    with app.worker(slots=2):
        job = double.submit(Size(1, 2), times=3)
        assert job.result(timeout_s=WAIT_S) == Size(3, 6)
    assert job.status() is State.DONE
    assert "DONE" in job.why()
    assert [entry.what for entry in job.history()] == ["submitted", "granted", "finished"]
    assert app.get(job.id).result(timeout_s=WAIT_S) == Size(3, 6)


def test_failed_job_shows_the_workers_traceback(app: Holdfast) -> None:
    """The error of a failed job has the exception's type and traceback."""

    @app.job
    def explode(word: str) -> None:
        raise ValueError(word)

    with app.worker(), pytest.raises(JobFailedError) as caught:
        explode.submit("boom").result(timeout_s=WAIT_S)
    assert caught.value.error_type == "ValueError"
    assert caught.value.reason == "ValueError: boom"
    assert "in explode\n    raise ValueError(word)" in str(caught.value)
    assert "site-packages" not in caught.value.remote_traceback
    assert "function_handler.py" not in caught.value.remote_traceback


def test_job_is_tried_again_as_its_options_say(app: Holdfast) -> None:
    """Errors are retried up to the limit, except permanent ones and those that the options name."""
    tries: dict[str, int] = {}

    @app.job(max_attempts=3, backoff=Backoff.fixed(0.001), no_retry=(KeyError,))
    def flaky(kind: str) -> int:
        tries[kind] = tries.get(kind, 0) + 1
        if kind == "permanent":
            raise PermanentError("never")
        if kind == "named":
            raise KeyError("never")
        if kind == "retry" and current().attempt == 1:
            raise Retry("once more", after_s=0.001)
        if kind == "always":
            raise OSError("again")
        return current().attempt

    with app.worker():
        jobs = {kind: flaky.submit(kind) for kind in ("permanent", "named", "retry", "always", "fine")}
        assert jobs["fine"].result(timeout_s=WAIT_S) == 1
        assert jobs["retry"].result(timeout_s=WAIT_S) == 2
        for kind in ("permanent", "named", "always"):
            with pytest.raises(JobFailedError):
                jobs[kind].result(timeout_s=WAIT_S)
    assert tries == {"permanent": 1, "named": 1, "retry": 2, "always": 3, "fine": 1}


def test_result_that_cannot_travel_fails_the_job_for_good(app: Holdfast) -> None:
    """A result that cannot be encoded as JSON fails the job without a retry."""

    @app.job(max_attempts=5)
    def odd() -> object:
        return object()

    with app.worker(), pytest.raises(JobFailedError, match="RESULT_NOT_SERIALIZABLE"):
        odd.submit().result(timeout_s=WAIT_S)


def test_result_that_does_not_fit_its_annotation_fails_the_job_for_good(app: Holdfast) -> None:
    """A result that does not fit its annotation fails the job without a retry, and the reason names type and value."""

    @app.job(max_attempts=5)
    def count() -> int:
        return "seven"  # type: ignore[return-value]

    @app.job(max_attempts=5)
    async def acount() -> int:
        return "seven"  # type: ignore[return-value]

    with app.worker():
        for job in (count.submit(), acount.submit()):
            with pytest.raises(JobFailedError, match=r"^job .* failed: RESULT_TYPE_MISMATCH: .*int.*str: 'seven'"):
                job.result(timeout_s=WAIT_S)
            assert (job.view().state, job.view().attempts) == (State.FAILED, 1)


@pytest.mark.parametrize("size", [limits.OUTPUT_BYTES_MAX, 2 * limits.PAYLOAD_BYTES_MAX])
def test_result_that_is_too_large_fails_with_its_size_and_the_limit(app: Holdfast, size: int) -> None:
    """A result above the limit fails with OUTPUT_TOO_LARGE, and the error and `why` have its size and the limit."""

    @app.job
    def large() -> str:
        return "x" * size

    with app.worker(), pytest.raises(JobFailedError) as caught:
        large.submit().result(timeout_s=WAIT_S)
    assert caught.value.reason == "OUTPUT_TOO_LARGE"
    for words in (caught.value.message, app.get(caught.value.job_id).why()):
        assert f"{size + 2}" in words
        assert f"{limits.OUTPUT_BYTES_MAX}" in words


def test_waiting_too_long_says_where_the_job_is(app: Holdfast) -> None:
    """A wait that times out raises a TimeoutError with an explanation, and the job stays."""

    @app.job
    def lonely() -> None: ...

    job = lonely.submit()
    with pytest.raises(TimeoutError) as caught:
        job.result(timeout_s=0.05)
    assert isinstance(caught.value, ResultTimeoutError)
    assert "worker" in caught.value.why
    assert job.status() is State.QUEUED


@pytest.mark.parametrize("is_awaited", [False, True])
def test_wait_for_a_type_that_no_worker_knows_is_a_warning(tmp_path: Path, *, is_awaited: bool) -> None:
    """In a directory, a wait for a type that no worker knows continues, and the log has one warning."""
    with Holdfast(tmp_path / "jobs") as here, capture_logs() as lines, ThreadPoolExecutor() as pool, here.worker():
        jobs = [here.submit("absent") for _ in range(2)]
        waits = [pool.submit(_wait_in_a_loop if is_awaited else Job.result, job) for job in jobs]
        eventually(lambda: [line for line in lines if line["event"] == "result_waits"], bool)
        for job in jobs:
            job.cancel()
        for wait in waits:
            with pytest.raises(JobCanceledError):
                wait.result(WAIT_S)
    (line,) = [line for line in lines if line["event"] == "result_waits"]
    assert (line["log_level"], line["reason"]) == ("warning", "TYPE_UNKNOWN")


def _wait_in_a_loop(job: Job[object]) -> object:
    return asyncio.run(job.aresult())


async def test_infinity_is_a_wait_without_an_end(app: Holdfast) -> None:
    """A wait with an infinite timeout, from a thread or from a loop, ends with the job."""

    @app.job
    def one() -> int:
        return 1

    with app.worker():
        assert await asyncio.to_thread(one.submit().result, math.inf) == 1
        assert await one.submit().aresult(math.inf) == 1


def test_canceled_job_has_no_result(app: Holdfast) -> None:
    """A cancel ends a waiting job, and a caller that waits for its result gets the reason."""

    @app.job
    def never() -> None: ...

    job = never.submit()
    assert job.cancel("changed my mind") is State.CANCELED
    with pytest.raises(JobCanceledError, match="changed my mind"):
        job.result(timeout_s=WAIT_S)
    again = job.retry()
    assert again != job
    assert again.status() is State.QUEUED


def test_backend_without_single_deletion_refuses_to_forget_a_job(app: Holdfast) -> None:
    """A backend without single deletion refuses to forget a job, and keeps it."""
    job = app.submit("x")
    with pytest.raises(UnimplementedError, match="only zk:// can delete single jobs"):
        job.forget()
    assert job.status().name == "QUEUED"


def test_job_code_tells_its_progress(app: Holdfast) -> None:
    """Progress and log lines of a running job are visible to other callers, and so is its end."""
    seen = threading.Event()

    @app.job
    def slow() -> str:
        context = current()
        context.progress(0.5, "half")
        context.log("a line")
        assert seen.wait(WAIT_S)
        return context.job_id

    with app.worker():
        job = slow.submit()
        for view in job.events():
            if view.progress is not None and not seen.is_set():
                assert (view.progress.fraction, view.progress.message) == (0.5, "half")
                seen.set()
        assert job.result(timeout_s=WAIT_S) == job.id
    assert any("a line" in entry.reason for entry in job.history())


def test_many_are_submitted_at_once_and_in_order(app: Holdfast) -> None:
    """Thousands of calls are submitted in batches, and the handles are in the order of the calls."""

    @app.job
    def add(a: int, b: int = 1) -> int:
        return a + b

    with app.worker(slots=4):
        jobs = add.submit_many([(number,) for number in range(2_300)] + [{"a": 1, "b": 5}])
        assert [job.result(timeout_s=WAIT_S) for job in jobs] == [*range(1, 2_301), 6]
    assert add.submit_many([]) == []


def test_refused_ones_of_many_are_named(app: Holdfast) -> None:
    """When some of many jobs are refused, the error has the handles of the others."""

    @app.job
    def work(n: int) -> None: ...

    app.drain("closed", "for good")
    closed, mixed = work.with_options(queue="closed"), work.with_options(request_id="one")
    with pytest.raises(SubmitManyError) as caught:
        closed.submit_many([(1,), (2,)])
    assert sorted(caught.value.errors) == [0, 1]
    with pytest.raises(SubmitManyError) as caught:
        mixed.submit_many([(1,), (1,), (2,)])
    assert [job is not None for job in caught.value.jobs] == [True, True, False]
    assert caught.value.jobs[0] == caught.value.jobs[1]
    assert caught.value.errors[2].reason == "REQUEST_ID_REUSED"


def test_options_of_one_call(app: Holdfast) -> None:
    """Options of one call apply to that call only, and its keys return the first job."""

    @app.job(queue="a")
    def work() -> None: ...

    later = work.with_options(delay_s=3_600, queue="b", labels={"team": "x"}).submit()
    assert later.view().not_before_ms > later.view().created_ms
    at = work.with_options(at=datetime.now(UTC) + timedelta(hours=1)).submit()
    assert at.view().not_before_ms > 0
    first = work.with_options(unique_key="k").submit()
    second = work.with_options(unique_key="k").submit()
    assert (second, second.is_existing, first.is_existing) == (first, True, False)
    assert [job.id for job in app.find(queue="b", labels={"team": "x"})] == [later.id]
    assert {job.id for job in app.find(state="queued", type="work")} == {later.id, at.id, first.id}
    assert list(app.find(state=[State.DONE])) == []


def test_queues_are_steered_from_the_app(app: Holdfast) -> None:
    """An app can pause, resume and purge a queue."""

    @app.job(queue="slow")
    def work() -> int:
        return 1

    app.pause("slow", "maintenance")
    job = work.submit()
    (queue,) = app.queues()
    assert (queue.name, queue.ready) == ("slow", 1)
    assert app.purge("slow") == 1
    app.resume("slow")
    assert job.status() is State.CANCELED
    assert app.stats().states["CANCELED"] == 1


def test_jobs_by_name_need_no_function(app: Holdfast) -> None:
    """Any type can be submitted by name, with arguments by name, in order, or as bytes."""
    with app.worker():
        assert app.submit("echo", {"a": 1}).result(timeout_s=WAIT_S) == {"a": 1}
        assert app.submit("echo", [1, 2]).result(timeout_s=WAIT_S) == [1, 2]
        assert app.submit("echo", b"\x00").result(timeout_s=WAIT_S) == b"\x00"
    with pytest.raises(InvalidArgumentError):
        app.submit("echo", "text")
    with pytest.raises(NotFoundError):
        app.get("nobody")


async def test_everything_can_be_awaited(app: Holdfast) -> None:
    """Submit, wait, watch and search can be awaited on an event loop without blocking it."""

    @app.job
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    assert await add(1, 2) == 3
    worker = await asyncio.to_thread(app.worker(slots=2).start)
    try:
        job = await add.asubmit(1, b=2)
        assert await job == 3
        assert await job.astatus() is State.DONE
        assert [view.state async for view in job.aevents()] == [State.DONE]
        jobs = await add.asubmit_many([(1, 2), (3, 4)])
        assert await asyncio.gather(*jobs) == [3, 7]
        assert len([one async for one in app.afind(type="add")]) == 3
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await (await add.with_options(delay_s=60).asubmit(1, 2))
    finally:
        await asyncio.to_thread(worker.stop)


def test_threads_share_an_app(app: Holdfast) -> None:
    """Many threads can submit and wait at once with one app."""

    @app.job
    def square(n: int) -> int:
        return n * n

    with app.worker(slots=4), ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: square.submit(n).result(timeout_s=WAIT_S), range(200)))
    assert results == [n * n for n in range(200)]


def test_sync_call_on_the_portals_thread_is_an_error(app: Holdfast) -> None:
    """A sync call on the portal's own thread, which would wait for itself, is refused."""

    async def misuse() -> None:
        app.stats()

    with pytest.raises(FailedPreconditionError, match="await"):
        app._portal().run(misuse)


def test_closed_app_says_so(app: Holdfast) -> None:
    """After close every call is refused, and a second close has no effect."""
    app.stats()
    app.close()
    app.close()
    with pytest.raises(UnavailableError, match="closed"):
        app.stats()


@pytest.mark.parametrize(
    "url", ["redis://x", "holdfast://", "holdfast://host:0", "holdfast://h:99999", "localhost:50051", "", "a\0b"]
)
def test_urls_that_cannot_be_are_refused(url: str) -> None:
    """An invalid URL is refused when the app is created."""
    with pytest.raises(InvalidArgumentError):
        Holdfast(url)


def test_settings_are_checked_when_the_app_is_made() -> None:
    """All problems of the settings are reported together when the app is created."""
    with pytest.raises(InvalidArgumentError, match=r"(?s)colour.*lease_ms"):
        Holdfast("memory://", settings={"lease_ms": 0, "colour": 1})


def test_two_functions_of_one_name_are_refused() -> None:
    """Two functions with one job type are refused."""
    app = Holdfast("memory://")
    app.job(name="same")(lambda: 1)
    with pytest.raises(InvalidArgumentError, match="same"):
        app.job(name="same")(test_settings_are_checked_when_the_app_is_made)
    with pytest.raises(InvalidArgumentError, match="name="):
        app.job(lambda: 1)
