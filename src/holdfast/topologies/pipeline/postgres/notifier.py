"""Notifications to other processes about commits; for frequent changes they are sent after the commit, in batches.

A notification inside a transaction makes all commits of the database wait for each other. A notification is
lost if this process dies right after the commit; its receivers then read the change at their next poll.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from holdfast.errors import HoldfastError
from holdfast.postgres.statements import statements
from holdfast.topologies.pipeline.postgres.connections import Database, StoreConnection

_SQL = statements(__package__, "notifications")

#: A notification that may wait is sent after this time, or together with one that may not.
_WAIT_S = 0.02


async def tell(connection: StoreConnection, changed: Iterable[str], *, is_due: bool) -> None:
    """Notifies that these jobs have changed, and with `is_due` that rows may have become visible."""
    await connection.execute(_SQL["tell"], {"ids": list(changed), "is_due": is_due})


class StoreNotifier:
    """The pending notifications of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed: dict[str, None] = {}
        self._is_due = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, changed: Iterable[str] = (), *, is_due: bool = False, may_wait: bool = False) -> None:
        """Sends a notification in the background."""
        self._changed.update(dict.fromkeys(changed))
        self._is_due |= is_due
        if not may_wait:
            self._go_on()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._go_on)

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Waits until all pending notifications were sent."""
        if self._timer is not None:
            self._go_on()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._changed or self._is_due:
            work = partial(tell, changed=self._changed, is_due=self._is_due)
            self._changed, self._is_due = {}, False
            with suppress(HoldfastError):  # the receivers also poll
                await self._database.ask(work)
