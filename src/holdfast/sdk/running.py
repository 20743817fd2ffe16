"""A job function as a worker's handler: payload in, output out, and every exception as a failure that can be read."""

import inspect
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from holdfast import limits
from holdfast.backends.ports import Assignment
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.codec import Codec, encode
from holdfast.sdk.errors import ArgumentsError, PermanentError, Retry
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode

#: Enough for any stack that people read; the end of it matters most.
_TRACEBACK_CHARS_MAX = 16_384
_MESSAGE_CHARS_MAX = 4_096


class Failure(msgspec.Struct, frozen=True):
    """The output of a failed job."""

    type: str = ""
    message: str = ""
    traceback: str = ""


def failure_of(output: bytes) -> Failure:
    """What a failed job left behind; empty where no exception did."""
    try:
        return msgspec.json.decode(output, type=Failure) if output else Failure()
    except msgspec.DecodeError:
        return Failure()


def handler_of(
    function: Callable[..., Any], codec: Callable[[], Codec], no_retry: tuple[type[BaseException], ...], isolation: str
) -> Handler:
    """The handler of a job function; `codec` is asked for when the first job runs."""
    if inspect.iscoroutinefunction(function):
        return Handler(_awaiting(function, codec, no_retry), Mode.ASYNC)
    return Handler(_calling(function, codec, no_retry), Mode(isolation))


def _calling(
    function: Callable[..., Any], codec: Callable[[], Codec], no_retry: tuple[type[BaseException], ...]
) -> Callable[[Assignment], bytes]:
    def run(assignment: Assignment) -> bytes:
        arguments = _arguments(codec, assignment)
        try:
            result = function(*arguments.args, **arguments.kwargs)
        except Exception as error:  # whatever the job raises is its failure
            raise _failed(error, no_retry) from error
        return _output(result)

    return run


def _awaiting(
    function: Callable[..., Coroutine[Any, Any, Any]],
    codec: Callable[[], Codec],
    no_retry: tuple[type[BaseException], ...],
) -> Callable[[Assignment], Coroutine[Any, Any, bytes]]:
    async def run(assignment: Assignment) -> bytes:
        arguments = _arguments(codec, assignment)
        try:
            result = await function(*arguments.args, **arguments.kwargs)
        except Exception as error:  # whatever the job raises is its failure
            raise _failed(error, no_retry) from error
        return _output(result)

    return run


def _arguments(codec: Callable[[], Codec], assignment: Assignment) -> Any:  # noqa: ANN401 - of the codec
    try:
        return codec().decode(assignment.payload)
    except InvalidArgumentError as error:
        reason = "ARGUMENTS_INVALID" if isinstance(error, ArgumentsError) else error.reason
        raise AttemptFailedError(f"{reason}: {error.message}", is_retryable=False) from error


def _output(result: object) -> bytes:
    try:
        output = encode(result)
    except InvalidArgumentError as error:
        message = f"RESULT_NOT_SERIALIZABLE: a result of type {type(result).__name__} {error.message}"
        raise AttemptFailedError(message[: limits.REASON_CHARS_MAX], is_retryable=False) from error
    if len(output) > limits.OUTPUT_BYTES_MAX:
        raise AttemptFailedError("OUTPUT_TOO_LARGE", is_retryable=False)
    return output


def _failed(error: Exception, no_retry: tuple[type[BaseException], ...]) -> AttemptFailedError:
    message = _words(error)
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    after_s = error.after_s if isinstance(error, Retry) else None
    return AttemptFailedError(
        reason[: limits.REASON_CHARS_MAX],
        is_retryable=not isinstance(error, (PermanentError, *no_retry)),
        retry_after_ms=max(1, round(after_s * 1_000)) if after_s is not None else 0,
        output=msgspec.json.encode(Failure(_name(type(error)), message[:_MESSAGE_CHARS_MAX], _trace(error))),
    )


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _words(error: BaseException) -> str:
    try:
        return _sound(str(error))
    except Exception:  # noqa: BLE001 - not even its words need be sound
        return "it cannot be shown"


def _trace(error: BaseException) -> str:
    """The traceback from the job's own function on: the frame that calls it says nothing."""
    if error.__traceback__ is not None:
        error = error.with_traceback(error.__traceback__.tb_next)
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - an exception may be broken in many ways
        return ""
    return _sound(text if len(text) <= _TRACEBACK_CHARS_MAX else f"...\n{text[-_TRACEBACK_CHARS_MAX:]}")


def _sound(text: str) -> str:
    return text.encode(errors="replace").decode()
