"""Declarations of job functions by `@app.job`."""

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.sdk.function import JobFunction
from holdfast.sdk.options import SharedOptions

P = ParamSpec("P")
R = TypeVar("R")


class Declaration(SharedOptions, total=False):
    """The arguments of `@app.job`."""

    name: str | None
    no_retry: tuple[type[BaseException], ...]
    isolation: str
    aliases: Sequence[str]


class Decorator:
    """The result of `app.job(...)`: takes a function, and returns a job function."""

    def __init__(self, make: Callable[[Callable[..., Any]], JobFunction[Any, Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> JobFunction[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> JobFunction[P, R, R]: ...
    def __call__(self, function: Callable[..., Any]) -> JobFunction[Any, Any, Any]:
        return self._make(function)


def type_name(function: Callable[..., Any]) -> str:
    """The function's name as a job type, without the names of its module and class."""
    name = getattr(function, "__name__", type(function).__name__)
    if not _is_type(name):
        raise InvalidArgumentError(
            f'{name!r} is not a valid job type; give the function a name, such as @app.job(name="resize")',
            reason="JOB_TYPE_INVALID",
        )
    return name


def exceptions(given: object) -> tuple[type[BaseException], ...]:
    """Checks the `no_retry` option, and returns it as a tuple."""
    some = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in some):
        raise InvalidArgumentError(
            f"no_retry must be an exception class or a tuple of them, got {given!r}; for example no_retry=(ValueError,)"
        )
    return some


def alias_names(given: object) -> tuple[str, ...]:
    """Checks the `aliases` option, and returns it as a tuple."""
    some: list[Any] = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [None]
    if not all(map(_is_type, some)):
        raise InvalidArgumentError(
            f'aliases must be a list of job types such as ["old_name"], got {given!r}', reason="OPTION_INVALID"
        )
    return tuple(dict.fromkeys(some))


def _is_type(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(limits.NAME_PATTERN, name) is not None


def is_redefinition(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Whether the new function replaces the old one: a reloaded module or a notebook cell that was run again."""
    return _place(old) == _place(new)


def _place(function: Callable[..., Any]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None)
