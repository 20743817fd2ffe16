"""One client: asks for jobs, looks at them, and disturbs them, one call at a time, as its randomness says.

What nobody knows the fate of is asked for again until it is known, if it can be; nothing else is ever asked for twice
by mistake. A client has a bounded number of jobs open, so that it is as fast as the jobs end.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.lab.history.records import Seen
from holdfast.lab.torture.load.drawing import PAUSED_QUEUE, QUEUES, Drawer
from holdfast.lab.torture.load.faces import Face, LostError, Order, Told
from holdfast.lab.torture.load.notebook import Notebook

#: Jobs of one client that it has not seen ended.
OPEN_MAX = 30
#: What it remembers to come back to.
_REMEMBERED_MAX = 50
_PAGE = 20
_PAGES_MAX = 3
_PAUSE_S = 0.04
#: After a call that nobody answered.
_LOST_S = 0.2
_PAUSED_S = 1.0
_SETTLE_S = 0.01
_LOOKS_MAX = 100


Deed = Callable[[], Awaitable[object]]
Other = tuple[Face, Notebook]


class Options(msgspec.Struct, frozen=True):
    """What this client does beside the usual."""

    has_retry: bool = True
    #: Whether it pauses a queue now and then; one client alone does.
    has_pause: bool = False


class Client:
    """`run` until told to stop; then `settle`, and everything that it was told of is in `known`."""

    def __init__(
        self, name: str, face: Face, drawer: Drawer, book: Notebook, options: Options, *, other: Other | None = None
    ) -> None:
        """`other` is another interface, over which it asks again now and then."""
        self.name = name
        self._other = other
        self._face = face
        self._drawer = drawer
        self._draw = drawer.draw
        self._book = book
        self._options = options
        #: Every id that it was told, and whether it has seen that job ended.
        self.known: dict[str, bool] = {}
        self._open: list[str] = []
        self._ended: list[str] = []
        self._keyed: list[Order] = []
        self._unknown: list[list[Order]] = []
        self._is_paused = False
        self._deeds: list[tuple[Deed, int]] = [
            (self._submit, 45),
            (self._look_at_open, 30),
            (self._look_at_ended, 4),
            (self._cancel, 3),
            (self._cancel_waiting, 1),
            (self._list, 1),
            (self._other_under_key, 2),
        ]
        if options.has_retry:
            self._deeds.append((self._retry, 2))
        if options.has_pause:
            self._deeds.append((self._pause, 1))

    async def run(self, stopping: asyncio.Event) -> None:
        """Asks until told to stop."""
        await self.every_deed(stopping)
        while not stopping.is_set():
            try:
                await self._next_deed()()
            except LostError:
                await asyncio.sleep(_LOST_S)
            await asyncio.sleep(self._draw.random() * _PAUSE_S)

    async def every_deed(self, stopping: asyncio.Event) -> None:
        """Everything that it can do, once, if it is answered."""
        await self._try(self._submit)
        await self._try(self._cancel_waiting)
        for _ in range(_LOOKS_MAX):
            if self._ended or stopping.is_set():
                break
            await self._try(self._look_at_open)
            await asyncio.sleep(self._draw.random() * _PAUSE_S)
        for deed, _ in self._deeds:
            await self._try(deed)

    async def _try(self, deed: Deed) -> None:
        with contextlib.suppress(LostError):
            await deed()

    def _next_deed(self) -> Deed:
        if self._is_paused:  # else clients would soon have nothing open but what waits there
            return self._resume
        if self._unknown and self._draw.random() < 0.5:  # noqa: PLR2004 - a share
            return self._submit_again
        if len(self._open) >= OPEN_MAX:
            return self._look_at_open
        deeds, weights = zip(*self._deeds, strict=True)
        chosen: Deed = self._draw.choices(deeds, weights)[0]
        return chosen

    async def settle(self, stopping: asyncio.Event) -> None:
        """Leaves no queue paused and no repeatable submit unknown, and sees its jobs end; gives up when told to."""
        while not stopping.is_set() and (self._is_paused or self._unknown or self._open):
            try:
                if self._is_paused:
                    await self._resume()
                elif self._unknown:
                    await self._submit_again()
                else:
                    await self._look_at_open()
                await asyncio.sleep(_SETTLE_S)
            except LostError:
                await asyncio.sleep(_LOST_S)

    async def look_again(self, job_id: str) -> None:
        """One job as this interface shows it, at the end."""
        await self._book.look("get", job_id, self._face.get(job_id))
        if self._face.via == "http":
            await self._book.look("result", job_id, self._face.result(job_id))

    async def close(self) -> None:
        """Ends its connection."""
        await self._face.close()
        if self._other is not None:
            await self._other[0].close()

    # -- submits

    async def _submit(self) -> None:
        await self._ask_for(self._drawer.orders(has_ids=self._face.has_ids, has_options=self._face.has_options))

    async def _submit_again(self) -> None:
        """The same; whichever interface it is said over."""
        orders = self._unknown.pop(0)
        is_other = self._other is not None and self._draw.random() < 0.5 and all(one.wanted.key for one in orders)  # noqa: PLR2004 - a share
        await self._ask_for(orders, self._other if is_other else None)

    async def _ask_for(self, orders: list[Order], other: Other | None = None) -> None:
        is_again = all(order.is_repeatable for order in orders)
        face, book = other or (self._face, self._book)
        try:
            told = await book.submit(orders, face.submit(orders))
        except LostError:
            if is_again:
                self._unknown.append(orders)
            raise
        if told is None:
            if is_again and self._draw.random() < 0.5:  # noqa: PLR2004 - refused for now: room, or a key under way
                self._unknown.append(orders)
            return
        if is_again and (not told.is_whole or self._draw.random() < 0.03):  # noqa: PLR2004 - a share, for its own sake
            self._unknown.append(orders)
        self._take(orders, told)

    def _take(self, orders: list[Order], told: Told) -> None:
        for order, job_id in zip(orders, told.ids, strict=True):
            if not job_id:
                continue
            if job_id not in self.known:
                self.known[job_id] = False
                self._open.append(job_id)
            if order.wanted.key:
                self._keyed.append(order)
        del self._keyed[:-_REMEMBERED_MAX]

    async def _other_under_key(self) -> None:
        """Must be refused; if it is not, that is written down, and judged."""
        if self._keyed:
            order = self._drawer.other_under(self._draw.choice(self._keyed))
            told = await self._book.submit([order], self._face.submit([order]))
            for job_id in told.ids if told else ():
                if job_id:
                    self.known.setdefault(job_id, False)

    # -- looks

    async def _look_at_open(self) -> None:
        if not self._open:
            return
        job_id = self._open[0] if self._draw.random() < 0.7 else self._draw.choice(self._open)  # noqa: PLR2004 - a share
        if self._draw.random() < 0.5:  # noqa: PLR2004 - a share
            wait_s = 0.5 if len(self._open) >= OPEN_MAX else 0.0
            seen = await self._book.look("result", job_id, self._face.result(job_id, wait_s), wait_s)
        else:
            seen = await self._book.look("get", job_id, self._face.get(job_id))
        self._note(job_id, seen)

    def _note(self, job_id: str, seen: Seen | None) -> None:
        if seen is None:  # nobody knows it: judged later; looking again does not help
            self._open.remove(job_id)
        elif not self.known[job_id] and self._book.ended(seen):
            self.known[job_id] = True
            self._open.remove(job_id)
            self._ended.append(job_id)
            del self._ended[:-_REMEMBERED_MAX]
        elif job_id in self._open:  # the others first
            self._open.remove(job_id)
            self._open.append(job_id)

    async def _look_at_ended(self) -> None:
        if self._ended:
            job_id = self._draw.choice(self._ended)
            if self._draw.random() < 0.5:  # noqa: PLR2004 - a share
                await self._book.look("result", job_id, self._face.result(job_id))
            else:
                await self._book.look("get", job_id, self._face.get(job_id))

    async def _list(self) -> None:
        queue = self._draw.choice(QUEUES)
        cursor = ""
        for _ in range(self._draw.randint(1, _PAGES_MAX)):
            page = await self._book.page(self._face.list(queue, cursor, _PAGE))
            if page is None or not page.cursor:
                return
            cursor = page.cursor

    # -- disturbances

    async def _cancel(self) -> None:
        if self._open:
            job_id = self._open[-1] if self._draw.random() < 0.7 else self._draw.choice(self._open)  # noqa: PLR2004
            seen = await self._book.look("cancel", job_id, self._face.cancel(job_id))
            if seen is not None:
                self._note(job_id, seen)

    async def _cancel_waiting(self) -> None:
        """One that cannot have begun yet, where the interface has delays: it ends at once, and for good."""
        if not self._face.has_options:
            return
        order = self._drawer.waiting()
        told = await self._book.submit([order], self._face.submit([order]))
        if told is not None and told.ids[0]:
            job_id = told.ids[0]
            self._take([order], told)
            seen = await self._book.look("cancel", job_id, self._face.cancel(job_id))
            if seen is not None:
                self._note(job_id, seen)

    async def _retry(self) -> None:
        if self._ended:
            job_id = self._draw.choice(self._ended)
            key = self._drawer.key_beside(job_id)
            new_id = await self._book.retry(job_id, self._face.retry(job_id, key))
            if new_id is not None and new_id not in self.known:
                self.known[new_id] = False
                self._open.append(new_id)

    async def _pause(self) -> None:
        """For a moment; if nobody answers, until somebody does."""
        self._is_paused = True  # also after a refusal: of several nodes, some may have done it
        if await self._book.do("pause", self._face.set_paused(PAUSED_QUEUE, is_paused=True), 0):
            await asyncio.sleep(self._draw.random() * _PAUSED_S)
        await self._resume()

    async def _resume(self) -> None:
        if await self._book.do("resume", self._face.set_paused(PAUSED_QUEUE, is_paused=False), 0):
            self._is_paused = False
