"""The failure description: the output of an attempt that raised, as JSON. Workers write it, all interfaces read it."""

import msgspec

from holdfast import limits

#: Lengths to which the parts of an oversized description are cut; even escaped, they fit into the limit together.
_TYPE_CHARS, _MESSAGE_CHARS, _TRACEBACK_CHARS = 256, 1_024, 8 * 1_024
_CUT = "...\n"


class Failure(msgspec.Struct, frozen=True):
    """The type, message and traceback of an exception; empty where no exception was the cause."""

    type: str = ""
    message: str = ""
    traceback: str = ""


_NONE = Failure()


def failure_of(output: bytes) -> Failure:
    """Decode a failure description; any other output gives an empty one."""
    try:
        return msgspec.json.decode(output, type=Failure) if output else _NONE
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NONE


def bounded(output: bytes) -> bytes:
    """The failure description that the journal keeps of an attempt that is retried; other outputs are dropped."""
    failure = failure_of(output)
    if failure == _NONE:
        return b""
    if len(output) <= limits.FAILURE_BYTES_MAX:
        return output
    shorter = Failure(
        failure.type[:_TYPE_CHARS], failure.message[:_MESSAGE_CHARS], last_part(failure.traceback, _TRACEBACK_CHARS)
    )
    return msgspec.json.encode(shorter)


def traceback_of(output: bytes) -> str:
    """The traceback of a failure description, as a job's history shows it."""
    traceback = failure_of(output).traceback
    if len(traceback.encode()) <= limits.DETAIL_BYTES_MAX:
        return traceback
    return last_part(traceback, limits.DETAIL_BYTES_MAX // 4)


def last_part(text: str, chars_max: int) -> str:
    """The end of a text; the last lines of a traceback are the most useful."""
    return text if len(text) <= chars_max else _CUT + text[len(_CUT) - chars_max :]
