"""Fixtures for programs that use Holdfast; a `conftest.py` loads them: `pytest_plugins = ["holdfast.testing.plugin"]`.

`holdfast_app`: an app in memory. `holdfast_clock`: its clock, moved by `advance(seconds)`. `holdfast_memory(app)`:
makes a program's own app keep its jobs in memory during the test. `holdfast.testing.run_jobs(app)` runs due jobs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.testing.clock import ManualClock


@pytest.fixture
def holdfast_clock() -> "ManualClock":
    """A clock that moves only by `advance(seconds)`."""
    from holdfast.testing.clock import ManualClock  # noqa: PLC0415 - costs nothing in a suite that does not use it

    return ManualClock()


@pytest.fixture
def holdfast_app(holdfast_clock: "ManualClock") -> "Iterator[Holdfast]":
    """An app in memory, on `holdfast_clock`."""
    from holdfast.testing.fixtures import memory_app  # noqa: PLC0415 - see above

    with memory_app(holdfast_clock) as app:
        yield app


@pytest.fixture
def holdfast_memory(holdfast_clock: "ManualClock") -> "Iterator[Callable[[Holdfast], Holdfast]]":
    """A function that takes an app; the app keeps its jobs in memory, on `holdfast_clock`, until the test ends."""
    from holdfast.testing.fixtures import in_memory  # noqa: PLC0415 - see above

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(in_memory(app, holdfast_clock))
