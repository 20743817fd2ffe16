"""The handler of a job function: decodes the payload, encodes the output, and describes every exception."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Assignment
from holdfast.sdk.codec import Codec, as_json
from holdfast.sdk.errors import ArgumentsError, PermanentError, ResultTypeError, Retry
from holdfast.worker.failures import described, reason_of
from holdfast.worker.handlers import AttemptFailedError, Handler, Mode, output_too_large


def handler_of(
    function: Callable[..., Any], codec: Callable[[], Codec], no_retry: tuple[type[BaseException], ...], isolation: str
) -> Handler:
    """Returns the handler of a job function; `codec` is first called when a job runs."""
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
        except Exception as error:  # any exception of the job is a failed attempt
            raise _failed(error, no_retry) from error
        return _output(codec, result)

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
        except Exception as error:  # any exception of the job is a failed attempt
            raise _failed(error, no_retry) from error
        return _output(codec, result)

    return run


def _arguments(codec: Callable[[], Codec], assignment: Assignment) -> Any:  # noqa: ANN401 - of the codec
    try:
        return codec().decode(assignment.payload)
    except InvalidArgumentError as error:
        reason = "ARGUMENTS_INVALID" if isinstance(error, ArgumentsError) else error.reason
        raise AttemptFailedError(f"{reason}: {error.message}", is_retryable=False) from error


def _output(codec: Callable[[], Codec], result: object) -> bytes:
    """The output of a call, checked before it is reported: a job is DONE only if `result()` can read it.

    A failure here is final. The function has run to its end, so another attempt would repeat its effects and most
    likely return the same type.
    """
    try:
        output = as_json(result)
    except InvalidArgumentError as error:
        message = f"RESULT_NOT_SERIALIZABLE: the result is of type {type(result).__name__}: {error.message}"
        raise AttemptFailedError(message, is_retryable=False) from error
    if len(output) > limits.OUTPUT_BYTES_MAX:
        raise output_too_large(len(output))
    try:
        codec().check_result(result, output)
    except ResultTypeError as error:
        raise AttemptFailedError(f"RESULT_TYPE_MISMATCH: {error.message}", is_retryable=False) from error
    return output


def _failed(error: Exception, no_retry: tuple[type[BaseException], ...]) -> AttemptFailedError:
    after_s = error.after_s if isinstance(error, Retry) else None
    return AttemptFailedError(
        reason_of(error),
        is_retryable=not isinstance(error, (PermanentError, *no_retry)),
        retry_after_ms=max(1, round(after_s * 1_000)) if after_s is not None else 0,
        output=described(error),
    )
