"""One client: submits jobs, reads them, and disturbs them, one call at a time, from its own random stream.

It repeats a submit with an unknown outcome until the outcome is known, if a repeat cannot create a second job.
Otherwise it repeats nothing by accident. It has a bounded number of open jobs, so its pace follows that of the jobs.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from holdfast_lab.history.records import QUEUED, JobSnapshot
from holdfast_lab.torture.load.call_log import CallLog
from holdfast_lab.torture.load.interfaces import JobOrder, LoadInterface, LostError, SubmitReply
from holdfast_lab.torture.load.random_orders import PAUSED_QUEUE, QUEUES, OrderGenerator

#: Jobs of one client that it has not seen ended.
OPEN_MAX = 30
#: Limit of remembered ended jobs and of used keys.
_REMEMBERED_MAX = 50
_PAGE = 20
_PAGES_MAX = 3
_PAUSE_S = 0.04
#: Pause after a call without a response.
_LOST_S = 0.2
_PAUSED_S = 1.0
_SETTLE_S = 0.01
_LOOKS_MAX = 100


Deed = Callable[[], Awaitable[object]]
Other = tuple[LoadInterface, CallLog]


class Options(msgspec.Struct, frozen=True):
    """Optional behaviour of this client."""

    has_retry: bool = True
    #: Whether it pauses a queue now and then; only one client does.
    has_pause: bool = False


class TortureClient:
    """`run` until stopped, then `settle`; `known` has every id that it received."""

    def __init__(
        self,
        name: str,
        interface: LoadInterface,
        order_generator: OrderGenerator,
        log: CallLog,
        options: Options,
        *,
        other: Other | None = None,
    ) -> None:
        """`other` is another interface, which it sometimes uses for repeats."""
        self.name = name
        self._other = other
        self._interface = interface
        self._order_generator = order_generator
        self._draw = order_generator.draw
        self._log = log
        self._options = options
        #: Every id that it received, and whether it has seen that job ended.
        self.known: dict[str, bool] = {}
        self._open: list[str] = []
        self._ended: list[str] = []
        self._keyed: list[JobOrder] = []
        self._unknown: list[list[JobOrder]] = []
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
        """Makes calls until stopped."""
        await self.every_deed(stopping)
        while not stopping.is_set():
            try:
                await self._next_deed()()
            except LostError:
                await asyncio.sleep(_LOST_S)
            await asyncio.sleep(self._draw.random() * _PAUSE_S)

    async def every_deed(self, stopping: asyncio.Event) -> None:
        """Makes every kind of call once."""
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
        if self._is_paused:  # otherwise all open jobs would soon be in the paused queue
            return self._resume
        if self._unknown and self._draw.random() < 0.5:  # noqa: PLR2004 - a share
            return self._submit_again
        if len(self._open) >= OPEN_MAX:
            return self._look_at_open
        deeds, weights = zip(*self._deeds, strict=True)
        chosen: Deed = self._draw.choices(deeds, weights)[0]
        return chosen

    async def settle(self, stopping: asyncio.Event) -> None:
        """Resumes the queue, repeats unknown submits, and waits for its jobs to end, until `stopping` is set."""
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

    async def ask_again(self) -> None:
        """Submits every remembered order under its key again; each response must name the same job."""
        for order in self._keyed:
            with contextlib.suppress(LostError):
                await self._log.submit([order], self._interface.submit([order]))

    async def look_again(self, job_id: str) -> None:
        """Reads one job over this interface, at the end of the run."""
        await self._log.look("get", job_id, self._interface.get(job_id))
        if self._interface.via == "http":
            await self._log.look("result", job_id, self._interface.result(job_id))

    async def close(self) -> None:
        """Closes its connections."""
        await self._interface.close()
        if self._other is not None:
            await self._other[0].close()

    # -- submits

    async def _submit(self) -> None:
        await self._ask_for(
            self._order_generator.orders(has_ids=self._interface.has_ids, has_options=self._interface.has_options)
        )

    async def _submit_again(self) -> None:
        """Repeats a submit, sometimes over the other interface."""
        orders = self._unknown.pop(0)
        is_other = self._other is not None and self._draw.random() < 0.5 and all(one.wanted.key for one in orders)  # noqa: PLR2004 - a share
        await self._ask_for(orders, self._other if is_other else None)

    async def _ask_for(self, orders: list[JobOrder], other: Other | None = None) -> None:
        is_again = all(order.is_repeatable for order in orders)
        interface, log = other or (self._interface, self._log)
        try:
            told = await log.submit(orders, interface.submit(orders))
        except LostError:
            if is_again:
                self._unknown.append(orders)
            raise
        if told is None:
            if is_again and self._draw.random() < 0.5:  # noqa: PLR2004 - maybe a temporary refusal: no space, or the key is in use
                self._unknown.append(orders)
            return
        if is_again and (not told.is_whole or self._draw.random() < 0.03):  # noqa: PLR2004 - a share, to test repeats
            self._unknown.append(orders)
        self._take(orders, told)

    def _take(self, orders: list[JobOrder], told: SubmitReply) -> None:
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
        """Submits other content under a used key; if it is not refused, the checker finds that in the records."""
        if self._keyed:
            order = self._order_generator.other_under(self._draw.choice(self._keyed))
            told = await self._log.submit([order], self._interface.submit([order]))
            for job_id in told.ids if told else ():
                if job_id:
                    self.known.setdefault(job_id, False)

    # -- reads

    async def _look_at_open(self) -> None:
        if not self._open:
            return
        job_id = self._open[0] if self._draw.random() < 0.7 else self._draw.choice(self._open)  # noqa: PLR2004 - a share
        if self._draw.random() < 0.5:  # noqa: PLR2004 - a share
            wait_s = 0.5 if len(self._open) >= OPEN_MAX else 0.0
            seen = await self._log.look("result", job_id, self._interface.result(job_id, wait_s), wait_s)
        else:
            seen = await self._log.look("get", job_id, self._interface.get(job_id))
        self._note(job_id, seen)

    def _note(self, job_id: str, seen: JobSnapshot | None) -> None:
        if seen is None:  # refused, such as "not found": left to the checker, as reading again does not help
            self._open.remove(job_id)
        elif not self.known[job_id] and self._log.ended(seen):
            self.known[job_id] = True
            self._open.remove(job_id)
            self._ended.append(job_id)
            del self._ended[:-_REMEMBERED_MAX]
        elif job_id in self._open:  # read the others first
            self._open.remove(job_id)
            self._open.append(job_id)

    async def _look_at_ended(self) -> None:
        if self._ended:
            job_id = self._draw.choice(self._ended)
            if self._draw.random() < 0.5:  # noqa: PLR2004 - a share
                await self._log.look("result", job_id, self._interface.result(job_id))
            else:
                await self._log.look("get", job_id, self._interface.get(job_id))

    async def _list(self) -> None:
        queue = self._draw.choice(QUEUES)
        cursor = ""
        for _ in range(self._draw.randint(1, _PAGES_MAX)):
            page = await self._log.page(self._interface.list(queue, cursor, _PAGE))
            if page is None or not page.cursor:
                return
            cursor = page.cursor

    # -- disturbances

    async def _cancel(self) -> None:
        if self._open:
            job_id = self._open[-1] if self._draw.random() < 0.7 else self._draw.choice(self._open)  # noqa: PLR2004
            seen = await self._log.look("cancel", job_id, self._interface.cancel(job_id))
            if seen is not None:
                self._note(job_id, seen)
                if seen.state == QUEUED:  # accepted, and not done yet: it must not run unless it has begun
                    self._note(job_id, await self._log.look("get", job_id, self._interface.get(job_id)))

    async def _cancel_waiting(self) -> None:
        """Cancels a delayed job before it can begin, if the interface has delays: that ends it at once."""
        if not self._interface.has_options:
            return
        order = self._order_generator.waiting()
        told = await self._log.submit([order], self._interface.submit([order]))
        if told is not None and told.ids[0]:
            job_id = told.ids[0]
            self._take([order], told)
            seen = await self._log.look("cancel", job_id, self._interface.cancel(job_id))
            if seen is not None:
                self._note(job_id, seen)

    async def _retry(self) -> None:
        if self._ended:
            job_id = self._draw.choice(self._ended)
            key = self._order_generator.key_beside(job_id)
            new_id = await self._log.retry(job_id, self._interface.retry(job_id, key))
            if new_id is not None and new_id not in self.known:
                self.known[new_id] = False
                self._open.append(new_id)

    async def _pause(self) -> None:
        """Pauses the queue for a moment; if a call gets no response, until a resume succeeds."""
        self._is_paused = True  # also after a refusal: some of several nodes may have paused
        if await self._log.do("pause", self._interface.set_paused(PAUSED_QUEUE, is_paused=True), 0):
            await asyncio.sleep(self._draw.random() * _PAUSED_S)
        await self._resume()

    async def _resume(self) -> None:
        if await self._log.do("resume", self._interface.set_paused(PAUSED_QUEUE, is_paused=False), 0):
            self._is_paused = False
