"""Options of jobs, as given to `@app.job` or `with_options`; they are checked at once."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

import msgspec

from holdfast import limits
from holdfast.core import model
from holdfast.core.commands import Refusal
from holdfast.core.model import EXPONENTIAL, FIXED, QUADRATIC, Extra, Template
from holdfast.core.trace_context import TraceContext, carrying
from holdfast.core.validation import check_extra, check_template
from holdfast.errors import InvalidArgumentError
from holdfast.ports import JobDraft


class Backoff(msgspec.Struct, frozen=True):
    """The wait before the retry of a failed job: made by `fixed`, `exponential` or `quadratic`."""

    rule: model.BackoffRule = model.BackoffRule()

    @classmethod
    def fixed(cls, wait_s: float) -> "Backoff":
        """Waits `wait_s` seconds before every retry."""
        return cls(model.BackoffRule(FIXED, _ms("wait_s", wait_s), _ms("wait_s", wait_s)))

    @classmethod
    def exponential(cls, base_s: float = 1, max_s: float = limits.BACKOFF_MS_MAX / 1_000) -> "Backoff":
        """Waits up to base, 2 base, 4 base ... seconds, at random, so that jobs that failed together spread out."""
        return cls(model.BackoffRule(EXPONENTIAL, _ms("base_s", base_s), _ms("max_s", max_s)))

    @classmethod
    def quadratic(cls, base_s: float = 10, max_s: float = limits.BACKOFF_MS_MAX / 1_000) -> "Backoff":
        """Waits base, 4 base, 9 base ... seconds."""
        return cls(model.BackoffRule(QUADRATIC, _ms("base_s", base_s), _ms("max_s", max_s)))


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """All options of a job."""

    queue: str = limits.QUEUE_DEFAULT
    priority: int = limits.PRIORITY_DEFAULT
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    max_losses: int = limits.LOSSES_DEFAULT
    timeout_s: float = 0
    backoff: Backoff = Backoff()
    delay_s: float = 0
    at: datetime | None = None
    unique_key: str = ""
    request_id: str = ""
    labels: dict[str, str] = {}
    headers: dict[str, str] = {}


class SharedOptions(TypedDict, total=False):
    """The options that `@app.job` accepts for all jobs of a function."""

    queue: str
    priority: int
    max_attempts: int
    max_losses: int
    timeout_s: float
    backoff: Backoff


class OptionChanges(SharedOptions, total=False):
    """The options that `with_options` and `app.submit` accept."""

    delay_s: float
    at: datetime
    unique_key: str
    request_id: str
    labels: Mapping[str, str]
    headers: Mapping[str, str]


class CheckedOptions:
    """Checked options, as the template and the extras of jobs of one type."""

    __slots__ = ("_extra", "options", "template")

    def __init__(self, type_name: str, options: JobOptions) -> None:
        self.options = options
        self.template = Template(
            type_name,
            options.queue,
            options.priority,
            options.max_attempts,
            options.max_losses,
            _ms("timeout_s", options.timeout_s),
            options.backoff.rule,
        )
        self._extra = _extra(options)
        _raise(check_template(self.template))
        _raise(check_extra(self._extra) if self._extra is not None else None)
        _ms("delay_s", options.delay_s)
        _due_ms(options.at)

    def draft(self, job_id: str, payload: bytes, template: int = 0, context: TraceContext | None = None) -> JobDraft:
        """Returns the draft of one job, with the context of a trace if there is one."""
        options = self.options
        delay_ms = _ms("delay_s", options.delay_s) if options.delay_s else 0
        extra = self._extra if context is None else carrying(self._extra, context)
        return JobDraft(template, payload, delay_ms, _due_ms(options.at), extra, job_id)


def changed(options: JobOptions, changes: Mapping[str, Any]) -> JobOptions:
    """Returns the options with some of them changed; InvalidArgumentError names the wrong one."""
    given = {name: value for name, value in changes.items() if value is not None}
    unknown = given.keys() - set(JobOptions.__struct_fields__)
    if unknown:
        known = ", ".join(JobOptions.__struct_fields__)
        raise InvalidArgumentError(
            f"unknown option {', '.join(name + _hint(name) for name in sorted(unknown))}; the options are: {known}",
            reason="OPTION_UNKNOWN",
        )
    try:
        # Rebuilt from plain values, so that msgspec checks the type of each.
        values = {name: getattr(options, name) for name in JobOptions.__struct_fields__} | given
        return msgspec.convert(values, JobOptions, builtin_types=(datetime,), from_attributes=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(_sentence(str(error), given), reason="OPTION_INVALID") from None


def _hint(unknown: str) -> str:
    """A hint for an unknown option: the option that was probably meant, or that only `@app.job` accepts it."""
    if unknown in _DECLARED:
        return " (allowed in @app.job(...) only)"
    return suggestion(unknown, [*JobOptions.__struct_fields__, *_DECLARED], _ELSEWHERE)


def suggestion(unknown: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Suggests the name that was probably meant: by its name in other job queues, else by its spelling."""
    from difflib import get_close_matches

    meant = elsewhere.get(unknown) or next(iter(get_close_matches(unknown, known, n=1)), "")
    return f" (did you mean {meant}?)" if meant else ""


def _sentence(text: str, given: Mapping[str, object]) -> str:
    """Names the option that msgspec refused, what it must be, what was given, and what to write instead."""
    found = _PLACE.search(text)
    if found is None:
        return f"an option is wrong: {text}"
    name = found["name"]
    return f"{name} must be {_KINDS[name][0]}, got {given[name]!r}; use {_remedy(name, given[name])}"


def _remedy(name: str, value: object) -> str:
    if isinstance(value, timedelta) and name.endswith("_s"):
        return str(value.total_seconds())
    if name == "backoff" and type(value) in (int, float):
        return f"Backoff.fixed({value!r})"
    return _KINDS[name][1]


_PLACE = re.compile(r" - at `\$\.(?P<name>\w+)")
#: The type of each option in words, and an example.
_KINDS = {
    "queue": ("a string", 'a name such as "emails"'),
    "priority": ("a whole number", f"a number from {limits.PRIORITY_MIN} to {limits.PRIORITY_MAX}"),
    "max_attempts": ("a whole number", f"a number from 1 to {limits.ATTEMPTS_MAX}"),
    "max_losses": ("a whole number", f"a number from 0 to {limits.LOSSES_MAX}"),
    "timeout_s": ("a number of seconds", "a number such as 30 or 0.5"),
    "backoff": ("a Backoff", "Backoff.fixed(), Backoff.exponential() or Backoff.quadratic()"),
    "delay_s": ("a number of seconds", "a number such as 30 or 0.5"),
    "at": ("a datetime", "a datetime with a time zone"),
    "unique_key": ("a string", 'a key such as "report-2030"'),
    "request_id": ("a string", 'an id such as "order-17"'),
    "labels": ("a dict of strings", 'a dict such as {"team": "night"}'),
    "headers": ("a dict of strings", 'a dict such as {"tenant": "a"}'),
}
#: Options of `@app.job` that `with_options` cannot change.
_DECLARED = ("name", "aliases", "no_retry", "isolation")
#: Names of our options in other job queues.
_ELSEWHERE = {
    "countdown": "delay_s",
    "eta": "at",
    "max_retries": "max_attempts, one more than retries",
    "retries": "max_attempts, one more than retries",
    "soft_time_limit": "timeout_s",
    "time_limit": "timeout_s",
    "queue_name": "queue",
    "job_id": "request_id",
    "task_id": "request_id",
    "bind": "current(), without an option",
}


def _extra(options: JobOptions) -> Extra | None:
    if not (options.request_id or options.labels or options.headers or options.unique_key):
        return None
    return Extra(
        request_id=options.request_id,
        labels=tuple(sorted(options.labels.items())),
        headers=tuple(sorted(options.headers.items())),
        unique_key=options.unique_key,
    )


def _ms(name: str, seconds: float) -> int:
    if not 0 <= seconds <= limits.DELAY_MS_MAX / 1_000:  # also refuses NaN
        rule = f"from 0 to {limits.DELAY_MS_MAX // 1_000} seconds"
        raise InvalidArgumentError(f"{name} must be {rule}, got {seconds!r}", reason="OPTION_OUT_OF_RANGE")
    return max(1, round(seconds * 1_000)) if seconds else 0


def _due_ms(at: datetime | None) -> int:
    if at is None:
        return 0
    if at.tzinfo is None:
        raise InvalidArgumentError(
            f"at must have a time zone, got {at.isoformat()}; use datetime.now(timezone.utc) or astimezone()",
            reason="OPTION_INVALID",
        )
    return max(0, round(at.timestamp() * 1_000))


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refusal.error()
