"""What nobody needs any more is taken away: jobs whose time of retention is over, and nodes with nothing below them.

Invariants: a job goes with all its nodes or not at all; a node is only ever taken away empty, by the ensemble's own
rule.
"""

import asyncio
import contextlib

from holdfast.backends.zookeeper.changing import Changing, left_alone_if_damaged
from holdfast.backends.zookeeper.paths import due_of, minute_start_ms
from holdfast.backends.zookeeper.transactions import Delete, RefusedError, Step
from holdfast.core.lifecycle import TERMINAL

_AT_A_TIME = 64
_MINUTE_MS = 60_000


class Tidying:
    """Tidies up, now and then."""

    def __init__(self, changing: Changing, retain_ms: int) -> None:
        self._changing = changing
        self._connection, self._paths = changing.connection, changing.paths
        self._retain_ms = retain_ms
        #: Lanes and lines in which nothing was at the last look.
        self._empty: set[str] = set()

    async def look(self) -> None:
        """Once over everything."""
        await self._forget_ended()
        await self._drop_empty()

    async def _forget_ended(self) -> None:
        paths, before_ms = self._paths, self._connection.now_ms() - self._retain_ms
        for minute in sorted(await self._connection.children(paths.ended) or []):
            if minute_start_ms(minute) + _MINUTE_MS > before_ms:
                break
            names = await self._connection.children(f"{paths.ended}/{minute}") or []
            for start in range(0, len(names), _AT_A_TIME):
                await asyncio.gather(*map(self._forget, names[start : start + _AT_A_TIME]))
            self._connection.transact([Delete(f"{paths.ended}/{minute}")])
        for minute in sorted(await self._connection.children(paths.index) or []):
            if minute_start_ms(minute) + _MINUTE_MS > before_ms:
                break
            self._connection.transact([Delete(f"{paths.index}/{minute}")])  # refused while a job of it is there

    async def _forget(self, name: str) -> None:
        job_id = due_of(name)[1]
        with left_alone_if_damaged(job_id):
            kept = await self._changing.read(job_id)
            if kept is not None and kept.record.state in TERMINAL:
                with contextlib.suppress(RefusedError):  # its client was faster
                    await self._connection.transact(self._changing.moves.forget(kept))

    async def _drop_empty(self) -> None:
        """What was empty twice in a row; whoever needs it again makes it again."""
        paths, empty = self._paths, set[str]()
        for top in (paths.waiting, paths.lines):
            for name in await self._connection.children(top) or []:
                path = f"{top}/{name}"
                below = sorted(await self._connection.children(path) or [])
                stats = await asyncio.gather(*(self._connection.exists(f"{path}/{each}") for each in below))
                is_used = any(stat is not None and stat.children for stat in stats) or (top == paths.lines and below)
                if is_used:
                    continue
                empty.add(path)
                if path in self._empty:
                    steps: list[Step] = [Delete(f"{path}/{each}") for each in below]
                    self._connection.transact([*steps, Delete(path)])
        self._empty = empty
