"""What an exception of job code leaves behind: a reason of one line, and a description for whoever asks for the result.

An exception may be broken in many ways; none of them makes more of it than a failure of its attempt.
"""

import traceback
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.failure import Failure, last_part
from holdfast.core.text import as_text

MESSAGE_CHARS_MAX = 4 * 1_024
#: The end of a traceback says most; this much of it is kept.
TRACEBACK_CHARS_MAX = 16 * 1_024
_CUT = "...\n"
_PACKAGE = Path(__file__).parents[1]
#: What stands between the worker's loop and the job's own code.
_OURS = tuple(f"{_PACKAGE / folder}/" for folder in ("worker", "sdk"))


def reason_of(error: BaseException) -> str:
    """The exception in a line, no longer than is kept."""
    words = _words(error)[: limits.REASON_CHARS_MAX]
    name = type(error).__name__
    return as_text(f"{name}: {words}" if words else name)[: limits.REASON_CHARS_MAX]


def described(error: BaseException) -> bytes:
    """The exception as the output of its job."""
    try:
        message = as_text(_words(error)[:MESSAGE_CHARS_MAX])
        return msgspec.json.encode(Failure(_name(type(error)), message, as_text(_traceback(error))))
    except BaseException:  # noqa: BLE001 - no memory, or a class made to be a nuisance: the reason must do
        return b""


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - not even its words need be sound
        return "it cannot be shown"


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _traceback(error: BaseException) -> str:
    """What Python would print, without the frames that only lead to the job's own code, and bounded.

    A long message is cut before the frames are: they say where to look.
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
