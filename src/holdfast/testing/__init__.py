"""Building blocks for tests of Holdfast and of programs that use it.

For programs that use it: `run_jobs`, `arun_jobs`, `in_memory`, `ManualClock`, and the fixtures of `plugin`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.fixtures import in_memory
    from holdfast.testing.inline_runner import arun_jobs, run_jobs

__all__ = ["ManualClock", "arun_jobs", "in_memory", "run_jobs"]

_HOME_OF = {
    "ManualClock": "holdfast.testing.clock",
    "arun_jobs": "holdfast.testing.inline_runner",
    "in_memory": "holdfast.testing.fixtures",
    "run_jobs": "holdfast.testing.inline_runner",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
