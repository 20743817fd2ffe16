"""Renamed functions, apps of several modules, and a worker's warnings about jobs of unknown types."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast import Holdfast, InvalidArgumentError
from holdfast.testing import run_jobs

pytest_plugins = ["holdfast.testing.plugin"]

EMAILS = """
from {package}.app import app


@app.job
def send(to: str) -> str:
    return to


@app.schedule("0 9 * * *")
def digest() -> None: ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose modules are unloaded after the test."""
    folder = tmp_path / f"shop_{tmp_path.name.replace('-', '_')}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def start_events(app: Holdfast) -> dict[str, str]:
    """The warnings of a worker at its start, by event."""
    with capture_logs() as lines, app.worker():
        pass
    return {line["event"]: line["message"] for line in lines if line["log_level"] == "warning"}


def test_jobs_of_the_old_name_are_run_by_the_renamed_function(holdfast_app: Holdfast) -> None:
    """A function runs jobs that were submitted under its aliases, and the result has its annotated type."""

    @holdfast_app.job(aliases=["old.add"])
    def add(a: int, b: int) -> int:
        return a + b

    old = holdfast_app.submit("old.add", {"a": 1, "b": 2})
    new = add.submit(3, 4)
    run_jobs(holdfast_app)
    assert (old.result(), new.result()) == (3, 7)
    assert holdfast_app.get(old.id).result() == 3
    assert holdfast_app.aliases == {"old.add": "add"}


def test_two_functions_cannot_run_one_type(holdfast_app: Holdfast) -> None:
    """An alias that is another function's name or alias is refused, and so are aliases that are no list of types."""

    @holdfast_app.job(aliases=["before"])
    def first() -> None: ...

    def second() -> None: ...

    for taken in ("first", "before"):
        with pytest.raises(InvalidArgumentError, match=f"'first' and 'second' .* both run jobs of the type '{taken}'"):
            holdfast_app.job(aliases=[taken])(second)
    with pytest.raises(InvalidArgumentError, match="two functions of this app are called 'first'"):
        holdfast_app.job(name="first")(second)
    for wrong in ("before", ["two words"], 7):
        with pytest.raises(InvalidArgumentError, match="aliases must be a list of job types"):
            holdfast_app.job(aliases=wrong)(second)  # type: ignore[arg-type] # what is refused
    assert holdfast_app.job(aliases=["own"])(second).name == "second"


def before_renaming(folder: Path) -> None:
    """Creates a schedule and two jobs of functions that the next version of the app renames."""
    with Holdfast(folder) as app:

        @app.schedule("0 9 * * *")
        @app.job
        def old_report() -> None: ...

        app.set_schedules()
        old_report.submit()
        old_report.submit()


def test_worker_warns_of_jobs_and_schedules_that_no_worker_knows(tmp_path: Path) -> None:
    """The worker's warnings name the types with their jobs, and the schedules that create more of them."""
    before_renaming(tmp_path)
    with Holdfast(tmp_path) as app:

        @app.job
        def report() -> None: ...

        events = start_events(app)
    assert set(events) == {"unknown_types", "unknown_schedules"}
    assert "2 jobs wait of a type that no connected worker knows: old_report (2);" in events["unknown_types"]
    assert "knows: old_report (type old_report);" in events["unknown_schedules"]
    assert "aliases=[...]" in events["unknown_types"]


def test_aliases_end_the_warnings_and_the_waiting(tmp_path: Path) -> None:
    """With the old name as an alias, its jobs and schedules run, and the worker logs no warning."""
    before_renaming(tmp_path)
    with Holdfast(tmp_path) as app:

        @app.job(aliases=["old_report"])
        def report() -> None: ...

        assert start_events(app) == {}
        triggered = app.schedule_trigger("old_report")
        with app.worker():
            assert triggered.result() is None
            assert [job.result() for job in app.find(type="old_report")] == [None] * 3


def test_worker_warns_of_the_schedule_that_stayed_under_the_old_name(tmp_path: Path) -> None:
    """If the schedule of a function's old name is still set, the worker warns with the command that deletes it."""
    before_renaming(tmp_path)
    with Holdfast(tmp_path) as app:

        @app.schedule("0 9 * * *")
        @app.job(aliases=["old_report"])
        def report() -> None: ...

        (event, message) = start_events(app).popitem()
    assert event == "repeated_schedule"
    assert "`holdfast schedule delete old_report`" in message


def test_worker_warns_of_an_app_without_functions(holdfast_app: Holdfast) -> None:
    """A worker without functions warns that it runs only built-in types, and how to include modules."""
    events = start_events(holdfast_app)
    assert set(events) == {"no_job_functions"}
    assert 'app.include("module")' in events["no_job_functions"]


def test_included_modules_are_imported_when_a_worker_needs_them(package: Path) -> None:
    """An included module is imported when the app's functions or schedules are first needed."""
    (package / "app.py").write_text(
        f'from holdfast import Holdfast\n\napp = Holdfast("memory://")\napp.include("{package.name}.emails")\n'
    )
    (package / "emails.py").write_text(EMAILS.format(package=package.name))
    app = importlib.import_module(f"{package.name}.app").app
    assert f"{package.name}.emails" not in sys.modules
    assert {"send", "digest"} <= app.handlers().keys()
    assert [spec.name for spec in app.declared_schedules()] == ["digest"]
    with app.worker():
        assert app.submit("send", {"to": "me"}).result() == "me"
    app.close()


def test_included_module_that_cannot_be_imported_is_named(package: Path) -> None:
    """The error for an included module says whether it is missing, fails to import or has an invalid name."""
    app = Holdfast("memory://")
    with pytest.raises(InvalidArgumentError, match="takes full names of modules"):
        app.include(".x")
    app.include(f"{package.name}.missing")
    with pytest.raises(InvalidArgumentError, match=f"there is no module '{package.name}.missing'"):
        app.worker()
    (package / "broken.py").write_text("1 / 0\n")
    app = Holdfast("memory://")
    app.include(f"{package.name}.broken")
    with pytest.raises(InvalidArgumentError, match="ZeroDivisionError"):
        app.handlers()
