"""The output of `holdfast job get`: the job, its arguments and its attempts, as text or JSON."""

import base64
import json

import msgspec

from holdfast.cli.text import as_span, as_time, indented, print_fields, printable
from holdfast.cli.views import job_fields, job_json
from holdfast.core.history import Attempt
from holdfast.ports import JobView
from holdfast.server.attempts import JobAttempts

#: Arguments up to the first length are printed on one line, longer ones as a block that is cut at the second length.
_LINE_CHARS, _BLOCK_CHARS = 80, 4_000
_BINARY_BYTES = 48


class JobReport(msgspec.Struct, frozen=True):
    """A job with its payload and its attempts."""

    job: JobView
    payload: bytes
    attempts: JobAttempts


def report_json(report: JobReport) -> dict[str, object]:
    """Returns all data of a job for JSON; `attempts` is a number, `attempt_details` the list."""
    return {
        **job_json(report.job),
        **_arguments_json(report.payload),
        "attempt_details": [_attempt_json(one) for one in report.attempts.attempts],
        "attempts_missing": report.attempts.missing,
    }


def _arguments_json(payload: bytes) -> dict[str, object]:
    """Returns the arguments; those that are not JSON are in `arguments_base64`."""
    if not payload:
        return {"arguments": None}
    try:
        return {"arguments": _parsed(payload)}
    except ValueError:
        return {"arguments_base64": base64.b64encode(payload).decode()}


def _attempt_json(attempt: Attempt) -> dict[str, object]:
    return {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "worker_id": attempt.worker,
        "token": attempt.token,
        "started_at_ms": attempt.started_ms,
        "ended_at_ms": attempt.ended_ms,
        "reason": attempt.reason,
        "detail": attempt.detail,
    }


def print_report(report: JobReport) -> None:
    """Prints the job, its arguments if they are long, and one block per attempt."""
    shown = arguments_text(report.payload)
    is_line = len(shown) <= _LINE_CHARS and "\n" not in shown
    print_fields([*job_fields(report.job), ("arguments", shown if is_line else "")])
    if not is_line:
        print(f"\narguments\n{indented(shown)}")
    for attempt in report.attempts.attempts:
        print(f"\n{_heading(attempt)}")
        for text in (attempt.reason if attempt.reason not in attempt.detail else "", attempt.detail):
            if text:
                print(indented(text))
    if report.attempts.missing:
        print(f"\n{report.attempts.missing}")


def arguments_text(payload: bytes) -> str:
    """Returns the arguments as text: JSON on one line or indented, plain text, or a preview of binary data."""
    if not payload:
        return ""
    try:
        value = _parsed(payload)
    except ValueError:
        return _not_json(payload)
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _LINE_CHARS else _cut(_block(value), len(payload))


def _block(value: object) -> str:
    """Returns the beginning of the indented value: the whole text grows with the square of the nesting depth."""
    parts, chars = [], 0
    for part in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        parts.append(part)
        chars += len(part)
        if chars > _BLOCK_CHARS:
            break
    return "".join(parts)


def _not_json(payload: bytes) -> str:
    try:
        return _cut(payload.decode(), len(payload))
    except UnicodeDecodeError:
        more = "..." if len(payload) > _BINARY_BYTES else ""
        return f"{len(payload)} bytes, neither JSON nor text: {payload[:_BINARY_BYTES]!r}{more}"


def _cut(text: str, size_bytes: int) -> str:
    if len(text) <= _BLOCK_CHARS:
        return text
    return f"{text[:_BLOCK_CHARS]}\n... ({size_bytes} bytes in all; --json prints everything)"


def _parsed(payload: bytes) -> object:
    """Returns the JSON value; raises `ValueError` for anything that is not strictly JSON."""
    try:
        return json.loads(payload, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _heading(attempt: Attempt) -> str:
    where = f"on {attempt.worker}" if attempt.worker else ""
    took = f"after {as_span(attempt.ended_ms - attempt.started_ms)}" if attempt.started_ms and attempt.ended_ms else ""
    parts = (f"attempt {attempt.number}", attempt.outcome, where, as_time(attempt.started_ms), took)
    return "  ".join(printable(part) for part in parts if part)
