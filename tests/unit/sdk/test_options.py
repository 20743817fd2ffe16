"""Options of jobs: their checks, and the templates and drafts made from them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import limits
from holdfast.core import model
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.options import Backoff, CheckedOptions, JobOptions, OptionChanges, changed


def test_defaults_are_those_of_the_job_model() -> None:
    """Without options, the template is the default of the job model and the draft has no extras."""
    plan = CheckedOptions("work", JobOptions())
    assert plan.template == model.Template("work")
    assert plan.draft("id", b"{}").extra is None


def test_every_option_reaches_the_job() -> None:
    """Every option reaches the template or the draft, with seconds as milliseconds."""
    at = datetime(2100, 1, 1, tzinfo=UTC)
    options = changed(
        JobOptions(),
        {
            "queue": "q", "priority": 9, "max_attempts": 4, "max_losses": 1, "timeout_s": 1.5,
            "backoff": Backoff.fixed(2), "delay_s": 0.25, "at": at, "unique_key": "u", "request_id": "r",
            "labels": {"b": "2", "a": "1"}, "headers": {"h": "x"},
        },
    )  # fmt: skip
    unset = [name for name in JobOptions.__struct_fields__ if getattr(options, name) == getattr(JobOptions(), name)]
    assert unset == [], "add a value of these options above"
    plan = CheckedOptions("work", options)
    assert plan.template == model.Template("work", "q", 9, 4, 1, 1_500, model.BackoffRule(model.FIXED, 2_000, 2_000))
    draft = plan.draft("id", b"{}")
    assert (draft.delay_ms, draft.not_before_ms) == (250, round(at.timestamp() * 1_000))
    assert draft.extra == model.Extra("r", (("a", "1"), ("b", "2")), (("h", "x"),), unique_key="u")


def test_kinds_of_backoff() -> None:
    """Each constructor makes a rule of its kind, in milliseconds."""
    assert Backoff.exponential(base_s=1, max_s=60).rule == model.BackoffRule(model.EXPONENTIAL, 1_000, 60_000)
    assert Backoff.quadratic(base_s=10).rule.kind == model.QUADRATIC


def test_changes_leave_the_original_alone() -> None:
    """A change returns new options and leaves the original unchanged."""
    options = JobOptions()
    assert changed(options, {"priority": 1}).priority == 1
    assert options.priority == limits.PRIORITY_DEFAULT


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"priority": 10}, "priority"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"queue": "a b"}, "queue"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"delay_s": 10**9}, "delay_s"),
        ({"at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - without a zone on purpose
        ({"labels": {"": "x"}}, "label"),
        ({"labels": {"a": 1}}, "labels must be a dict of strings"),
        ({"request_id": "x" * 300}, "request id"),
        ({"colour": "red"}, "colour"),
        ({"backoff": 5}, "backoff must be a Backoff"),
    ],
)
def test_wrong_options_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    """An invalid option is refused at once, and the error names it."""
    with pytest.raises(InvalidArgumentError, match=words):
        CheckedOptions("work", changed(JobOptions(), changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prority": 9}, "unknown option prority (did you mean priority?)"),
        ({"countdown": 9}, "unknown option countdown (did you mean delay_s?)"),
        ({"max_retries": 3}, "unknown option max_retries (did you mean max_attempts, one more than retries?)"),
        ({"isolation": "process"}, "unknown option isolation (allowed in @app.job(...) only)"),
        ({"delay_s": timedelta(seconds=3)}, "a number of seconds, got datetime.timedelta(seconds=3); use 3.0"),
        ({"labels": {"a": 1}}, "labels must be a dict of strings, got {'a': 1}; use a dict such as"),
        ({"backoff": 3}, "backoff must be a Backoff, got 3; use Backoff.fixed(3)"),
        ({"backoff": "slow"}, "backoff must be a Backoff, got 'slow'; use Backoff.fixed(), Backoff.exponential()"),
        ({"at": 5}, "at must be a datetime, got 5; use a datetime with a time zone"),
    ],
)
def test_error_for_a_wrong_option_names_the_one_probably_meant(changes: dict[str, Any], words: str) -> None:
    """The error names the option that was probably meant, or the type that an option must have and an example."""
    with pytest.raises(InvalidArgumentError) as caught:
        changed(JobOptions(), changes)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", JobOptions.__struct_fields__)
def test_value_of_a_wrong_type_is_refused_with_an_example(name: str) -> None:
    """The error about a value of a wrong type names the option, its type and an example, for every option."""
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be .*, got .*; use "):
        changed(JobOptions(), {name: [object()]})


def test_every_option_can_be_passed_as_a_keyword() -> None:
    """Type checkers accept every option of a job in `with_options` and `app.submit`."""
    assert OptionChanges.__annotations__.keys() == set(JobOptions.__struct_fields__)


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "ü"])
def test_wrong_type_names_are_refused(name: str) -> None:
    """An invalid job type is refused."""
    with pytest.raises(InvalidArgumentError):
        CheckedOptions(name, JobOptions())
