"""Fixtures for programs that use Holdfast, once a `conftest.py` says `pytest_plugins = ["holdfast.testing.plugin"]`.

`holdfast_app`: an app in memory. `holdfast_clock`: its clock, moved by `advance(seconds)`. `holdfast_memory(app)`: has
a program's own app keep its jobs in memory for this test. To run what is due: `holdfast.testing.run_jobs(app)`.
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
    """A clock that stands still until `advance(seconds)`."""
    from holdfast.testing.clock import ManualClock  # noqa: PLC0415 - a suite that does not use it pays nothing

    return ManualClock()


@pytest.fixture
def holdfast_app(holdfast_clock: "ManualClock") -> "Iterator[Holdfast]":
    """An app in memory, on `holdfast_clock`."""
    from holdfast.testing.fixtures import memory_app  # noqa: PLC0415 - see above

    with memory_app(holdfast_clock) as app:
        yield app


@pytest.fixture
def holdfast_memory(holdfast_clock: "ManualClock") -> "Iterator[Callable[[Holdfast], Holdfast]]":
    """Call it with an app: until the test ends, that app keeps its jobs in memory, on `holdfast_clock`."""
    from holdfast.testing.fixtures import in_memory  # noqa: PLC0415 - see above

    with ExitStack() as stack:
        yield lambda app: stack.enter_context(in_memory(app, holdfast_clock))
