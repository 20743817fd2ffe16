"""The record of an exception in job code: a reason of one line, and a description that is kept as the job's output.

A broken exception, such as one whose `__str__` raises, causes no more than the failure of its attempt.
"""

import traceback
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.failure import Failure, last_part
from holdfast.core.text import as_text

MESSAGE_CHARS_MAX = 4 * 1_024
#: Longer tracebacks are cut at the beginning: the end is the most useful part.
TRACEBACK_CHARS_MAX = 16 * 1_024
_CUT = "...\n"
_PACKAGE = Path(__file__).parents[1]
#: Folders whose frames lie between the worker's loop and the job's own code.
_OURS = tuple(f"{_PACKAGE / folder}/" for folder in ("worker", "sdk"))


def reason_of(error: BaseException) -> str:
    """The exception in one line, cut to the limit for reasons."""
    words = _words(error)[: limits.REASON_CHARS_MAX]
    name = type(error).__name__
    return as_text(f"{name}: {words}" if words else name)[: limits.REASON_CHARS_MAX]


def described(error: BaseException) -> bytes:
    """The exception as JSON, for the output of its job; empty if it cannot be described."""
    try:
        message = as_text(_words(error)[:MESSAGE_CHARS_MAX])
        return msgspec.json.encode(Failure(_name(type(error)), message, as_text(_traceback(error))))
    except BaseException:  # noqa: BLE001 - out of memory, or a broken exception class: the reason has to suffice
        return b""


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the `__str__` of the job's class may raise anything
        return "it cannot be shown"


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, without Holdfast's own frames, cut to its limit.

    A long message is cut before the frames are, because the frames show where the error is.
    """
    shown = traceback.TracebackException.from_exception(error, limit=-100, compact=True)
    _leave_out(shown)
    whole, last = "".join(shown.format()), "".join(shown.format_exception_only())
    frames = whole.removesuffix(last) if len(last) > MESSAGE_CHARS_MAX else whole
    words = f"{last[:MESSAGE_CHARS_MAX]}{_CUT}" if frames is not whole else ""
    return last_part(frames, TRACEBACK_CHARS_MAX - len(words)) + words


def _leave_out(shown: traceback.TracebackException | None) -> None:
    while shown is not None:
        kept = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
        shown.stack = traceback.StackSummary.from_list(kept)
        shown = shown.__cause__ or shown.__context__
