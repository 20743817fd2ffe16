"""Holdfast: a durable, distributed job queue and scheduler.

Exports only the public names of the SDK. Each is imported on first use, so that `import holdfast` is cheap.
"""

from importlib import import_module

#: Type checkers take this name for true. Importing it from `typing` would double the time of `import holdfast`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.core.lifecycle import State
    from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError, UnavailableError
    from holdfast.ports import JobView, Progress
    from holdfast.sdk.errors import (
        JobCanceledError,
        JobFailedError,
        NoWorkerError,
        PermanentError,
        ResultTimeoutError,
        Retry,
        SubmitManyError,
    )
    from holdfast.sdk.function import JobFunction
    from holdfast.sdk.job import Job
    from holdfast.sdk.options import Backoff
    from holdfast.worker.context import JobContext, current

__all__ = [
    "Backoff",
    "Holdfast",
    "HoldfastError",
    "InvalidArgumentError",
    "Job",
    "JobCanceledError",
    "JobContext",
    "JobFailedError",
    "JobFunction",
    "JobView",
    "NoWorkerError",
    "NotFoundError",
    "PermanentError",
    "Progress",
    "ResultTimeoutError",
    "Retry",
    "State",
    "SubmitManyError",
    "UnavailableError",
    "__version__",
    "current",
]

__version__ = "0.2.0.dev0"

_HOMES = {
    "holdfast.app": ("Holdfast",),
    "holdfast.ports": ("JobView", "Progress"),
    "holdfast.core.lifecycle": ("State",),
    "holdfast.errors": ("HoldfastError", "InvalidArgumentError", "NotFoundError", "UnavailableError"),
    "holdfast.sdk.errors": (
        *("JobCanceledError", "JobFailedError", "NoWorkerError", "PermanentError", "ResultTimeoutError", "Retry"),
        "SubmitManyError",
    ),
    "holdfast.sdk.function": ("JobFunction",),
    "holdfast.sdk.job": ("Job",),
    "holdfast.sdk.options": ("Backoff",),
    "holdfast.worker.context": ("JobContext", "current"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
