"""The logger of Holdfast's modules.

In the programs of Holdfast this is structlog, configured by `observe.log_setup`. In a program that embeds Holdfast it
is the standard logger `holdfast`, which that program configures; by default Python prints its warnings and errors.
"""

import logging
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

import structlog

_OURS = "holdfast.observe.log_setup"


class RecordWriter(Protocol):
    """A writer of complete records, many at a time: much cheaper than one call for each."""

    def write(self, records: Iterable[Any]) -> None:
        """Writes one line per record."""
        ...


class LogLines(Protocol):
    """The line writer of a Holdfast program, and its service name."""

    service: str
    lines: RecordWriter


def get_lines() -> LogLines | None:
    """Returns the writer of complete records; None in a program that embeds Holdfast."""
    found = (one for one in structlog.get_config()["processors"] if getattr(type(one), "__module__", "") == _OURS)
    return next(found, None)


def is_on(log: Any, level: int) -> bool:  # noqa: ANN401 - a logger of `get_logger`, with bound fields
    """Returns whether lines of this level are written."""
    return bool(log.is_enabled_for(level) if hasattr(log, "is_enabled_for") else log.isEnabledFor(level))


def get_logger() -> Any:  # noqa: ANN401 - a bound logger of structlog; which one depends on the program
    """Returns a logger whose methods take an event name and fields."""
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
    """Renders the fields on one line, and a traceback below it with escaped control characters."""
    lines = str(event.pop("exception", "")).splitlines()
    shown = [line if line.isprintable() else repr(line)[1:-1] for line in lines]
    return "\n".join([str(_LINE(logger, method, event)), *shown])


def _is_ours(processor: object) -> bool:
    """Returns whether a processor was configured by a Holdfast program, or by a test that captures logs."""
    return getattr(processor, "__module__", "") == _OURS or isinstance(processor, structlog.testing.LogCapture)
