"""`@app.schedule`: its declarations, and its ticks on a clock that the test moves."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast, InvalidArgumentError, NotFoundError, current
from holdfast.errors import PermissionDeniedError, ResourceExhaustedError
from holdfast.testing import ManualClock, run_jobs

pytest_plugins = ["holdfast.testing.plugin"]


def test_schedule_runs_its_function_by_the_clock(holdfast_app: Holdfast, holdfast_clock: ManualClock) -> None:
    """A schedule runs its function twelve times an hour, each job with its own tick and the decorator's arguments."""
    seen: list[tuple[str, datetime | None, str]] = []

    @holdfast_app.schedule("*/5 * * * *", tz="Europe/Paris", args=("night",))
    def tidy(kind: str) -> None:
        seen.append((kind, current().scheduled_for, current().schedule))

    holdfast_app.set_schedules()
    holdfast_clock.advance(3_600)
    run_jobs(holdfast_app)
    assert [(kind, schedule) for kind, _, schedule in seen] == [("night", "tidy")] * 12
    moments = [moment for _, moment, _ in seen if moment is not None]
    assert all(moment.utcoffset() == timedelta() and moment.minute % 5 == 0 for moment in moments)
    assert {later - earlier for earlier, later in itertools.pairwise(moments)} == {timedelta(minutes=5)}


def test_job_without_a_schedule_has_no_tick(holdfast_app: Holdfast) -> None:
    """A job without a schedule has neither a tick nor a schedule's name, whatever its headers are."""
    seen = []

    @holdfast_app.job
    def look() -> None:
        seen.append((current().scheduled_for, current().schedule))

    look.submit()
    look.with_options(headers={"holdfast-scheduled-for": "soon"}).submit()
    run_jobs(holdfast_app)
    assert seen == [(None, ""), (None, "")]


def test_decorators_may_stand_in_any_order(holdfast_app: Holdfast) -> None:
    """The jobs of a schedule have the options of `@app.job` above or below it, and the function stays callable."""

    @holdfast_app.schedule(every=60)
    @holdfast_app.job(queue="above", max_attempts=3)
    def first(number: int = 1) -> int:
        return number

    @holdfast_app.job(queue="below", name="renamed")
    @holdfast_app.schedule(every=timedelta(minutes=2), name="second-plan", kwargs={"number": 7})
    def second(number: int) -> int:
        return number

    one, two = holdfast_app.set_schedules()
    assert (one.spec.name, one.spec.template.queue, one.spec.template.max_attempts) == ("first", "above", 3)
    assert (one.spec.every_ms, one.spec.payload) == (60_000, b"{}")
    assert (two.spec.name, two.spec.template.type, two.spec.template.queue) == ("second-plan", "renamed", "below")
    assert (two.spec.every_ms, two.spec.payload) == (120_000, b'{"number":7}')
    assert (first(5), second(6), first.name, second.name) == (5, 6, "first", "renamed")
    assert "second" not in holdfast_app.handlers()


def test_coroutines_and_several_schedules_of_one_function(holdfast_app: Holdfast, holdfast_clock: ManualClock) -> None:
    """A coroutine function can have several schedules, each with a name of its own."""
    seen: list[str] = []

    @holdfast_app.schedule(every=10, name="often", args=["often"])
    @holdfast_app.schedule(every=30, name="seldom", args=["seldom"])
    async def note(kind: str) -> None:
        seen.append(kind)

    holdfast_app.set_schedules()
    holdfast_clock.advance(31)
    run_jobs(holdfast_app)
    assert sorted(seen) == ["often", "often", "often", "seldom"]


def test_setting_again_changes_nothing_and_leaving_out_deletes_nothing(
    holdfast_app: Holdfast, holdfast_clock: ManualClock
) -> None:
    """Setting schedules again changes nothing, and a schedule that is no longer declared stays until it is deleted."""

    @holdfast_app.schedule(every=60)
    def tidy() -> None: ...

    (before,) = holdfast_app.set_schedules()
    holdfast_clock.advance(90)
    (after,) = holdfast_app.set_schedules()
    assert (after.created_ms, after.fired) == (before.created_ms, 1)
    other = Holdfast("memory://")
    assert other.set_schedules() == []
    assert [view.spec.name for view in holdfast_app.schedules()] == ["tidy"]


def test_schedule_can_be_looked_after(holdfast_app: Holdfast, holdfast_clock: ManualClock) -> None:
    """A schedule can be paused, resumed, triggered, previewed and deleted, from sync code and from a loop."""

    @holdfast_app.schedule("30 2 * * *", tz="Europe/Paris")
    def nightly() -> str:
        return "done"

    holdfast_app.set_schedules()
    assert holdfast_app.schedule_pause("nightly").is_paused
    holdfast_clock.advance(2 * 86_400)
    assert holdfast_app.schedule_view("nightly").fired == 0
    assert not holdfast_app.schedule_resume("nightly").is_paused
    job = holdfast_app.schedule_trigger("nightly")
    run_jobs(holdfast_app)
    assert job.result() == "done"
    after = datetime(2026, 3, 28, 12)  # noqa: DTZ001 - a local time of the schedule
    first, second = holdfast_app.schedule_preview("nightly", 2, after)
    assert first == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert second == datetime(2026, 3, 30, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    assert second.utcoffset() == timedelta(hours=2)

    async def end() -> None:
        assert [view.spec.name for view in await holdfast_app.aschedules()] == ["nightly"]
        await holdfast_app.aschedule_delete("nightly")

    asyncio.run(end())
    with pytest.raises(NotFoundError):
        holdfast_app.schedule_view("nightly")


def test_worker_sets_the_schedules_of_its_app(holdfast_app: Holdfast) -> None:
    """A worker sets the schedules of its app before it has started."""

    @holdfast_app.schedule(at=datetime(2040, 12, 24, 18), tz="Europe/Paris")  # noqa: DTZ001 - a local time of the schedule
    def gifts() -> None: ...

    with holdfast_app.worker():
        (view,) = holdfast_app.schedules()
    assert view.spec.at_ms == int(datetime(2040, 12, 24, 17, tzinfo=UTC).timestamp() * 1_000)


def test_instant_within_a_second_is_the_second_after_it(holdfast_app: Holdfast) -> None:
    """A schedule's instant is rounded up to the next whole second."""

    @holdfast_app.schedule(at=datetime(2040, 12, 24, 18, 0, 0, 250_000, tzinfo=UTC))
    def gifts() -> None: ...

    (spec,) = holdfast_app.declared_schedules()
    assert spec.at_ms == int(datetime(2040, 12, 24, 18, 0, 1, tzinfo=UTC).timestamp() * 1_000)


def test_worker_whose_schedules_are_refused_does_not_start(
    holdfast_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose schedules are refused fails with that error and leaves nothing running."""

    @holdfast_app.schedule(every=60)
    def tidy() -> None: ...

    worker = holdfast_app.worker()
    refused = ResourceExhaustedError("too many schedules")

    async def refuse() -> None:
        raise refused

    monkeypatch.setattr(worker, "_prepare", refuse)
    with pytest.raises(ResourceExhaustedError):
        worker.start()
    with pytest.raises(ResourceExhaustedError):
        worker.run()
    with holdfast_app.worker():
        assert len(holdfast_app.workers()) == 1


def test_worker_that_may_not_set_schedules_works_all_the_same(
    holdfast_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that may not set schedules, because of its token's scope, warns and runs jobs."""

    @holdfast_app.job
    def double(number: int) -> int:
        return 2 * number

    async def refuse() -> None:
        raise PermissionDeniedError("this token may not")

    worker = holdfast_app.worker()
    monkeypatch.setattr(worker, "_prepare", refuse)
    with pytest.warns(RuntimeWarning, match="not set: this token may not"):
        worker.start()
    assert double.submit(4).result(timeout_s=30) == 8
    worker.stop()


@pytest.mark.parametrize(
    ("cron", "rules", "words"),
    [
        ("", {}, "exactly one of cron, every and at"),
        ("0 9", {"every": 60}, "exactly one of cron, every and at"),
        ("61 *", {}, "a cron expression"),
        ("0 9", {"tz": "Mars/Base"}, "the name of a time zone"),
        ("", {"every": 0.5}, "a whole number of seconds"),
        ("", {"every": "5m"}, "a timedelta or a number of seconds"),
        ("", {"every": True}, "a timedelta or a number of seconds"),
        ("", {"at": "tomorrow"}, "must be a datetime, got 'tomorrow'"),
        ("0 9", {"overlap": "maybe"}, "one of allow, skip, cancel_running"),
        ("0 9", {"catch_up": "some"}, "one of none, latest, all"),
        ("0 9", {"jitter_s": -1}, "jitter_s"),
        ("0 9", {"zone": "UTC"}, "unknown schedule option zone"),
        ("0 9", {"name": "a b"}, "name"),
    ],
)
def test_mistakes_are_told_where_they_are_written(cron: str, rules: dict[str, object], words: str) -> None:
    """An invalid schedule is refused when the module is loaded, not when a worker starts."""
    app = Holdfast("memory://")

    def tidy() -> None: ...

    with pytest.raises(InvalidArgumentError, match=words):
        app.schedule(cron, **rules)(tidy)  # type: ignore[arg-type]


def test_two_schedules_of_one_name_are_refused() -> None:
    """Two schedules with one name are refused."""
    app = Holdfast("memory://")
    with pytest.raises(InvalidArgumentError, match="two schedules of this app are called 'tidy'"):

        @app.schedule("0 9")
        @app.schedule("0 10")
        def tidy() -> None: ...


def test_arguments_that_do_not_fit_are_told_when_they_are_set() -> None:
    """Arguments that do not fit the function are refused when its schedules are set."""
    app = Holdfast("memory://")

    @app.schedule("0 9", args=("seven",))
    def count(number: int) -> None:
        del number

    with pytest.raises(InvalidArgumentError, match="number"):
        app.declared_schedules()
