"""One coroutine, two methods: the sync one waits for it, the async one awaits it.

A class writes what happens once, as a coroutine method (or an async generator), and names its two faces beside it:

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


class OnPortal(Protocol):
    """Something whose coroutines run on a portal."""

    def _portal(self) -> "Portal":
        """The portal, started if need be."""
        ...


S = TypeVar("S", bound=OnPortal)


def waiting(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """The face for callers without a loop: blocks until the answer is there."""

    @wraps(method)
    def face(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal().run(lambda: method(self, *args, **kwargs))

    return face


def awaiting(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The face for callers on any event loop."""

    @wraps(method)
    async def face(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._portal().arun(lambda: method(self, *args, **kwargs))

    return face


def iterating(method: Callable[Concatenate[S, P], AsyncIterator[T]]) -> Callable[Concatenate[S, P], Iterator[T]]:
    """The face of a stream for `for`."""

    @wraps(method)
    def face(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._portal().iterate(lambda: method(self, *args, **kwargs))

    return face


def aiterating(method: Callable[Concatenate[S, P], AsyncIterator[T]]) -> Callable[Concatenate[S, P], AsyncIterator[T]]:
    """The face of a stream for `async for`."""

    @wraps(method)
    def face(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._portal().aiterate(lambda: method(self, *args, **kwargs))

    return face
