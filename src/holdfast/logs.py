"""Where Holdfast's own parts log to.

In a program of ours that is structlog, as `observe.logging` has set it up. In a program that embeds us it is the
standard logger `holdfast`: whoever embeds us decides what becomes of it, and without a word sees warnings and errors.
"""

import logging
from typing import Any

import structlog

_OURS = "holdfast.observe.logging"


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
            structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _is_ours(processor: object) -> bool:
    """Set up by our programs, or put there by a test that listens."""
    return getattr(processor, "__module__", "") == _OURS or isinstance(processor, structlog.testing.LogCapture)
