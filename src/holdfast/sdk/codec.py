"""Arguments and results as JSON, by the annotations of a job function.

A payload is an object with a member for each parameter; `*args` is a list and `**kwargs` an object, each under its own
name. An array holds positional arguments, and an empty payload means no arguments. The sender decodes every payload
before it sends it, so that the worker can decode it, too. The worker fills in defaults.
"""

import inspect
import math
import re
import reprlib
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import msgspec

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.errors import ArgumentsError, ResultTypeError

_ENCODER = msgspec.json.Encoder()
#: JSON would silently convert other types to these, so the given value itself is checked.
_EXACT: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bytes: (bytes, bytearray, memoryview),
    int: (int,),
    float: (float, int),
    bool: (bool,),
}
#: Maximum length of a value in an error message.
_VALUE_CHARS_MAX = 200
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _VALUE_CHARS_MAX
_SPREAD = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLACE = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<place>.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Codec:
    """Encodes and decodes the arguments and the result of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
        self._signature = inspect.signature(function)
        self._parameters = list(self._signature.parameters.values())
        hints = _hints(function, self._name)
        self._names = [parameter.name for parameter in self._parameters]
        self._exact = {
            parameter.name: _EXACT[hints[parameter.name]]
            for parameter in self._parameters
            if parameter.kind not in _SPREAD and isinstance(kind := hints.get(parameter.name), type) and kind in _EXACT
        }
        self._is_plain = all(parameter.kind is Parameter.POSITIONAL_OR_KEYWORD for parameter in self._parameters)
        self._decoder = self._make_decoder(hints)
        self._result_kind = hints.get("return", Any)
        self._result_decoder = _decoder(self._result_kind, f"the result of {self._name}()")

    def _make_decoder(self, hints: Mapping[str, Any]) -> msgspec.json.Decoder[Any]:
        fields = [_field(parameter, hints.get(parameter.name, Any)) for parameter in self._parameters]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        return _decoder(struct, f"the parameters of {self._name}()")

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Returns the payload of a call; ArgumentsError names the parameter, what was expected and what was given."""
        arguments = self._bind(args, kwargs)
        for name, kinds in self._exact.items():
            if name in arguments:
                self._check_exact(name, arguments[name], kinds)
        payload = encode(arguments, self._problem)
        self._decode(payload)
        return payload

    def decode(self, payload: bytes) -> Arguments:
        """Returns the arguments in a payload; raises ArgumentsError if they do not fit the function."""
        body = payload.strip()
        if body.startswith(b"["):
            body = self._by_name(body)
        return self._spread(self._decode(body or b"{}"))

    def decode_result(self, output: bytes) -> Any:  # noqa: ANN401 - of the function's return type
        """Decodes a result by the return annotation; raises ResultTypeError if it does not fit."""
        try:
            return self._result_decoder.decode(output) if output else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ResultTypeError(
                f"the result of {self._name}() does not fit its return annotation: {error}; use the same annotation in"
                " the worker and in the caller"
            ) from error

    def check_result(self, value: object, output: bytes) -> None:
        """Raises ResultTypeError if the value, whose JSON is `output`, does not fit the return annotation."""
        kind = self._result_kind
        if kind is Any:
            return
        exact = _EXACT.get(kind) if isinstance(kind, type) else None
        place = ""
        if exact is None or _is_exact(value, exact):
            try:
                self._result_decoder.decode(output)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                place = f" ({error})" if _PLACE.match(str(error)) else ""
            else:
                return
        raise ResultTypeError(
            f"{self._name}() must return {inspect.formatannotation(kind)}, as it is annotated;"
            f" got {type(value).__name__}: {_shown(value)}{place}; change the function or its annotation"
        )

    # -- encoding

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if not kwargs and self._is_plain and len(args) <= len(self._names):
            return dict(zip(self._names, args, strict=False))
        if self._is_plain and len(args) <= len(self._names) and not kwargs.keys() & self._names[: len(args)]:
            # Unknown and missing names are found when the payload is decoded again.
            return {**dict(zip(self._names, args, strict=False)), **kwargs}
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise ArgumentsError(f"{self._name}(): {error}", reason="ARGUMENTS_INVALID") from None

    def _check_exact(self, name: str, value: object, kinds: tuple[type, ...]) -> None:
        if not _is_exact(value, kinds):
            raise self._problem(f"parameter {name!r}: expected {kinds[0].__name__}, got {type(value).__name__}")

    # -- decoding

    def _decode(self, payload: bytes) -> Any:  # noqa: ANN401 - a struct made for this function
        try:
            return self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise self._problem(_sentence(str(error), self._names)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._problem(f"the payload must be JSON: {error}; send an object or an array of arguments") from None

    def _by_name(self, body: bytes) -> bytes:
        """Converts an array of positional arguments to an object by parameter name."""
        try:
            values = msgspec.json.decode(body, type=list[msgspec.Raw])
            arguments = self._signature.bind_partial(*values).arguments
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._problem(f"the payload must be JSON: {error}; send an object or an array of arguments") from None
        except TypeError as error:
            raise self._problem(str(error)) from None
        return _ENCODER.encode(arguments)

    def _spread(self, values: object) -> Arguments:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        is_positional = True
        for parameter in self._parameters:
            value = getattr(values, parameter.name)
            if value is msgspec.UNSET:
                is_positional = False  # its default applies, so later arguments must be passed by name
            elif parameter.kind is Parameter.VAR_POSITIONAL:
                args += value
            elif parameter.kind is Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif is_positional and parameter.kind is not Parameter.KEYWORD_ONLY:
                args.append(value)
            else:
                kwargs[parameter.name] = value
        return Arguments(tuple(args), kwargs)

    def _problem(self, text: str) -> ArgumentsError:
        return ArgumentsError(f"{self._name}(): {text}", reason="ARGUMENTS_INVALID")


def encode(value: object, problem: Callable[[str], InvalidArgumentError] = InvalidArgumentError) -> bytes:
    """Encodes arguments as JSON, up to the size limit of payloads; `problem` makes the error."""
    data = as_json(value, problem)
    if len(data) > limits.PAYLOAD_BYTES_MAX:
        raise problem(
            f"the arguments must take at most {limits.PAYLOAD_BYTES_MAX} bytes as JSON, got {len(data)};"
            " store large data elsewhere, and pass a reference to it"
        )
    return data


def as_json(value: object, problem: Callable[[str], InvalidArgumentError] = InvalidArgumentError) -> bytes:
    """Encodes a value as JSON of any size; `problem` makes the error."""
    try:
        data = _ENCODER.encode(value)
        if b"null" in data and _has_odd_number(msgspec.to_builtins(value)):
            raise problem("every number must be finite, got NaN or infinity; JSON has no such numbers, use None")
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise problem(
            f"the value cannot be sent as JSON: {error}{_culprit(value)};"
            " use JSON types, dataclasses or msgspec structs"
        ) from None
    return data


def decode_any(output: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decodes an output to plain values; returns bytes if it is not JSON."""
    try:
        return msgspec.json.decode(output) if output else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return output


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(
            f"the annotations of {name}() cannot be read: {error}; define the types that they name at the top level of"
            " its module",
            reason="ANNOTATION_INVALID",
        ) from error


def _decoder(kind: Any, what: str) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any annotation
    try:
        return msgspec.json.Decoder(kind)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{what} cannot be sent as JSON: {error}; use JSON types, dataclasses or msgspec structs as annotations",
            reason="ANNOTATION_INVALID",
        ) from error


def _field(parameter: Parameter, hint: Any) -> tuple[str, Any, Any]:  # noqa: ANN401 - any annotation
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return parameter.name, list[hint], msgspec.field(default_factory=list)
    if parameter.kind is Parameter.VAR_KEYWORD:
        return parameter.name, dict[str, hint], msgspec.field(default_factory=dict)
    if parameter.default is Parameter.empty:
        return parameter.name, hint, msgspec.field()
    return parameter.name, _or_unset(hint), msgspec.field(default=msgspec.UNSET)


def _or_unset(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    return Any if hint is Any else typing.Union[hint, msgspec.UnsetType]  # noqa: UP007 - made at run time


def _sentence(text: str, names: Sequence[str]) -> str:
    """Rewrites an error message of msgspec, with the parameter's name first."""
    if missing := _MISSING.fullmatch(text):
        return f"parameter {missing['name']!r}: expected a value, got none"
    if unknown := _UNKNOWN.fullmatch(text):
        return f"unknown parameter {unknown['name']!r}; the parameters are: {', '.join(names) or 'none'}"
    found = _PLACE.match(text)
    if found is None:
        return text
    parameter, dot, rest = found["place"].partition(".")
    parameter, bracket, index = parameter.partition("[")
    inside = f" at {bracket}{index}{dot}{rest}" if bracket or dot else ""
    problem = found["problem"].replace("`", "")
    return f"parameter {parameter!r}: {problem[:1].lower()}{problem[1:]}{inside}"


def _culprit(value: object) -> str:
    """Names the argument that cannot be encoded."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            try:
                _ENCODER.encode(part)
            except Exception:  # noqa: BLE001 - the same error as before, now for one argument
                return f" (parameter {name!r} of type {type(part).__name__})"
    return ""


def _is_exact(value: object, kinds: tuple[type, ...]) -> bool:
    is_bool_number = isinstance(value, bool) and bool not in kinds
    return isinstance(value, kinds) and not is_bool_number


def _shown(value: object) -> str:
    """The `repr` of a value, cut to a readable length."""
    try:
        return _REPR.repr(value)[:_VALUE_CHARS_MAX]
    except Exception:  # noqa: BLE001 - its `__repr__` may raise anything
        return "it cannot be shown"


def _has_odd_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    return any(_has_odd_number(part) for part in parts)
