"""Where Holdfast's own parts log to.

In a program of ours that is structlog, as `observe.logging` has set it up. In a program that embeds us it is the
standard logger `holdfast`: whoever embeds us decides what becomes of it, and without a word sees warnings and errors.
"""

import logging
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

import structlog

_OURS = "holdfast.observe.logging"


class LineWriter(Protocol):
    """Where records that are already complete go, many at a time: much cheaper than one call for each."""

    def write(self, records: Iterable[Any]) -> None:
        """Writes one line a record."""
        ...


class LogLines(Protocol):
    """The writer of a program of ours, and the service that its lines name."""

    service: str
    lines: LineWriter


def get_lines() -> LogLines | None:
    """The writer of complete records; None in a program that is not ours."""
    found = (one for one in structlog.get_config()["processors"] if getattr(type(one), "__module__", "") == _OURS)
    return next(found, None)


def is_on(log: Any, level: int) -> bool:  # noqa: ANN401 - what `get_logger` gives, with fields bound to it
    """Whether lines of this level are written."""
    return bool(log.is_enabled_for(level) if hasattr(log, "is_enabled_for") else log.isEnabledFor(level))


def get_logger() -> Any:  # noqa: ANN401 - a bound logger of structlog; which one depends on the program
    """A logger that takes an event's name and its fields."""
    processors = structlog.get_config()["processors"]
    if any(_is_ours(processor) for processor in processors):
        return structlog.get_logger()
    return structlog.wrap_logger(
        logging.getLogger("holdfast"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _with_traceback_below,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


_LINE = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)


def _with_traceback_below(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:  # noqa: ANN401 - structlog
    """The fields on one line, and a traceback readable below; its control characters are escaped."""
    lines = str(event.pop("exception", "")).splitlines()
    shown = [line if line.isprintable() else repr(line)[1:-1] for line in lines]
    return "\n".join([str(_LINE(logger, method, event)), *shown])


def _is_ours(processor: object) -> bool:
    """Set up by our programs, or put there by a test that listens."""
    return getattr(processor, "__module__", "") == _OURS or isinstance(processor, structlog.testing.LogCapture)
