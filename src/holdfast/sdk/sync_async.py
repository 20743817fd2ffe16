"""Pairs of methods from one coroutine: a sync one that blocks, and an async one.

A class implements an operation once, as a coroutine method (or an async generator), and makes the pair from it:

    async def _status(self) -> State: ...
    status, astatus = waiting(_status), awaiting(_status)
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from holdfast.sdk.portal import Portal

P = ParamSpec("P")
T = TypeVar("T")


class PortalOwner(Protocol):
    """An object whose coroutines run on a portal."""

    def _portal(self) -> "Portal":
        """Returns the portal; starts it if necessary."""
        ...


S = TypeVar("S", bound=PortalOwner)


def sync_method(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Makes the sync method, which blocks until the result is there."""

    @wraps(method)
    def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal().run(lambda: method(self, *args, **kwargs))

    return wrapper


def async_method(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Makes the async method, for callers on any event loop."""

    @wraps(method)
    async def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._portal().arun(lambda: method(self, *args, **kwargs))

    return wrapper


def sync_iterator(method: Callable[Concatenate[S, P], AsyncIterator[T]]) -> Callable[Concatenate[S, P], Iterator[T]]:
    """Makes the sync method of a stream, for `for`."""

    @wraps(method)
    def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._portal().iterate(lambda: method(self, *args, **kwargs))

    return wrapper


def async_iterator(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[S, P], AsyncIterator[T]]:
    """Makes the async method of a stream, for `async for`."""

    @wraps(method)
    def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._portal().aiterate(lambda: method(self, *args, **kwargs))

    return wrapper
