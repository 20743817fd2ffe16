"""Apps for tests: in memory, with a clock that the test advances."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.sdk.url_schemes import MEMORY, opener
from holdfast.testing.clock import ManualClock


@contextmanager
def memory_app(clock: ManualClock) -> Iterator[Holdfast]:
    """A new app in memory that follows the clock."""
    with Holdfast(MEMORY, clock=clock) as app:
        clock.drive(app.connection)
        yield app


@contextmanager
def in_memory(app: Holdfast, clock: ManualClock | None = None) -> Iterator[Holdfast]:
    """Makes a program's own app keep its jobs in memory inside the block; they are gone afterwards."""
    connection = app.connection
    before = connection.redirect(opener(MEMORY, {}, clock))
    if clock is not None:
        clock.drive(connection)
    try:
        yield app
    finally:
        connection.redirect(before)
