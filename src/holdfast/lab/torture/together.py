"""Several things at once, of which none outlives the others' failure."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Until all are done. If one fails, or this is canceled, the others are ended before that is said."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
