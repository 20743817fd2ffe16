"""Arguments and results as JSON, by annotation."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.codec import Codec, as_json, decode_any, encode
from holdfast.sdk.errors import ArgumentsError, ResultTypeError


class Colour(Enum):
    """A choice."""

    RED = "red"


@dataclass
class Point:
    """A plain dataclass."""

    x: int
    y: int = 0


class Box(msgspec.Struct):
    """A struct of msgspec."""

    corner: Point


def resize(path: str, width: int = 100) -> str:
    return f"{path}{width}"


def anything(value, other=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - without annotations on purpose
    return value, other


def spread(first: int, /, *rest: int, key: str = "k", **more: float) -> None: ...


def typed(kind: Any) -> Callable[..., Any]:  # noqa: ANN401 - any annotation
    def function(value: Any) -> Any: ...  # noqa: ANN401 - replaced below

    function.__annotations__ = {"value": kind, "return": kind}
    return function


def call(function: Callable[..., Any], *args: object, **kwargs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which a worker calls the function."""
    codec = Codec(function)
    arguments = codec.decode(codec.encode(args, kwargs))
    return arguments.args, arguments.kwargs


def test_payload_is_an_object_by_parameter_name() -> None:
    """A payload names the parameters, and leaves defaults to the worker."""
    assert Codec(resize).encode(("a.png",), {}) == b'{"path":"a.png"}'
    assert Codec(resize).encode(("a.png",), {"width": 2}) == b'{"path":"a.png","width":2}'


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (Colour, Colour.RED),
        (set[int], {1, 2}),
        (frozenset[str], frozenset({"a"})),
        (tuple[int, str], (1, "a")),
        (dict[int, Point], {1: Point(2, 3)}),
        (list[Box], [Box(Point(1))]),
        (int | None, None),
        (float, 1),
        (int, 2**70),
        (str, "ü\u2028"),
    ],
)
def test_annotated_values_come_back_as_they_were(kind: Any, value: object) -> None:  # noqa: ANN401 - any annotation
    """Arguments and results of every supported type are equal after they were encoded and decoded."""
    function = typed(kind)
    assert call(function, value) == ((value,), {})
    assert Codec(function).decode_result(encode(value)) == value


def test_unannotated_parameters_take_any_json() -> None:
    """Plain values of parameters without annotations are unchanged."""
    assert call(anything, {"a": [1, None, "x", 1.5]}) == (({"a": [1, None, "x", 1.5]},), {})


def test_all_kinds_of_parameters_are_carried() -> None:
    """Positional-only, variable and named parameters all receive their arguments."""
    assert call(spread, 1, 2, 3, key="z", a=1.5) == ((1, 2, 3), {"key": "z", "a": 1.5})
    assert call(spread, 1) == ((1,), {})


def test_argument_after_a_default_that_was_left_out_is_named() -> None:
    """An omitted default does not shift later arguments."""

    def function(a: int, b: int = 1, c: int = 2) -> None: ...

    assert call(function, 1, c=3) == ((1,), {"c": 3})


def test_array_is_positional_and_nothing_is_no_arguments() -> None:
    """The codec decodes an array of positional arguments and an empty payload, which other clients may send."""
    assert Codec(resize).decode(b' ["a", 5] ').args == ("a", 5)
    assert Codec(lambda: None).decode(b"").args == ()


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((5,), {}, "resize(): parameter 'path': expected str, got int"),
        ((UUID(int=1),), {}, "parameter 'path': expected str, got UUID"),
        (("a", True), {}, "parameter 'width': expected int, got bool"),
        (("a", 1.5), {}, "parameter 'width': expected int, got float"),
        ((), {}, "parameter 'path': expected a value, got none"),
        (("a",), {"height": 1}, "unknown parameter 'height'; the parameters are: path, width"),
        (("a",), {"path": "b"}, "multiple values for argument 'path'"),
        (("a", 1, 2), {}, "too many positional arguments"),
    ],
)
def test_wrong_arguments_are_refused_by_name(args: tuple[Any, ...], kwargs: dict[str, Any], words: str) -> None:
    """The error is a TypeError that names the function, the parameter and the expected type."""
    with pytest.raises(TypeError) as caught:
        Codec(resize).encode(args, kwargs)
    assert isinstance(caught.value, InvalidArgumentError)
    assert words in str(caught.value)
    assert "resize()" in str(caught.value)


def test_wrong_part_of_an_argument_is_named() -> None:
    """An error deep inside an argument names the place."""
    with pytest.raises(ArgumentsError, match=r"parameter 'value': expected int, got str at \[0\]\.corner\.x"):
        Codec(typed(list[Box])).encode(([{"corner": {"x": "1"}}],), {})
    with pytest.raises(ArgumentsError, match=r"parameter 'value': object missing required field x at \[0\]\.corner"):
        Codec(typed(list[Box])).encode(([{"corner": {}}],), {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": float("-inf")}]])
def test_numbers_that_json_cannot_say_are_refused(value: object) -> None:
    """NaN and infinity are errors, not nulls."""
    with pytest.raises(ArgumentsError, match="finite"):
        Codec(anything).encode((value,), {})
    with pytest.raises(InvalidArgumentError, match="finite"):
        encode(value)


def test_error_for_an_object_without_a_json_form_names_the_parameter() -> None:
    """An object without a JSON form is an error that names its parameter."""
    with pytest.raises(ArgumentsError, match="parameter 'other' of type object"):
        Codec(anything).encode((1, object()), {})
    with pytest.raises(ArgumentsError):
        Codec(anything).encode(("\ud800",), {})


def test_deep_nesting_is_refused() -> None:
    """A structure that is too deep to be encoded is an error, not a crash."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentsError):
        Codec(anything).encode((deep,), {})


def test_too_large_arguments_are_refused_before_sending() -> None:
    """Arguments above the size limit of payloads are refused, and the error names the limit."""
    with pytest.raises(ArgumentsError, match=str(limits.PAYLOAD_BYTES_MAX)):
        Codec(resize).encode(("a" * limits.PAYLOAD_BYTES_MAX,), {})


@pytest.mark.parametrize("payload", [b"{", b'{"path":1}', b"[1,2,3]", b'"text"', b'{"path":"a","x":1}', b"\xff"])
def test_payload_that_does_not_fit_is_refused(payload: bytes) -> None:
    """A payload that does not fit the parameters of the function is refused."""
    with pytest.raises(ArgumentsError):
        Codec(resize).decode(payload)


def test_result_that_does_not_fit_its_annotation_is_told() -> None:
    """A result of another type than annotated raises an error that names the function."""
    with pytest.raises(ResultTypeError, match="resize"):
        Codec(resize).decode_result(b"5")


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "seven", "must return int, as it is annotated; got str: 'seven'; change"),
        (int, True, "got bool: True"),
        (str, b"raw", "got bytes: b'raw'"),
        (bytes, "dGV4dA==", "got str: 'dGV4dA=='"),
        (None, 5, "got int: 5"),
        (list[int], [1, "x"], "got list: [1, 'x'] (Expected `int`, got `str` - at `$[1]`)"),
        (int, "x" * 10_000, "..."),
    ],
)
def test_value_that_does_not_fit_the_return_annotation_is_named(kind: Any, value: object, words: str) -> None:  # noqa: ANN401 - any annotation
    """The error names the annotation, the type of the value and the value, cut to a readable length."""

    def function() -> object: ...

    function.__annotations__["return"] = kind
    with pytest.raises(ResultTypeError) as caught:
        Codec(function).check_result(value, as_json(value))
    assert words in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(("kind", "value"), [(float, 1), (Any, object), (object, "x"), (None, None), (list[int], (1,))])
def test_value_that_fits_the_return_annotation_passes(kind: Any, value: object) -> None:  # noqa: ANN401 - any annotation
    """A value that `result()` can decode is accepted, and so is any value under an annotation that allows all."""

    def function() -> object: ...

    function.__annotations__["return"] = kind
    Codec(function).check_result(value, as_json(value) if value is not object else b"")


def test_output_without_annotation_is_json_or_bytes() -> None:
    """An output without a known function is decoded as JSON, or returned as bytes."""
    assert decode_any(b'{"a":1}') == {"a": 1}
    assert decode_any(b"\x00raw") == b"\x00raw"
    assert decode_any(b"") is None


def test_annotation_that_cannot_be_read_is_told() -> None:
    """An annotation with an undefined name raises an error that names the function."""

    def function(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - on purpose

    with pytest.raises(InvalidArgumentError, match="function"):
        Codec(function)
