"""Ends processes that job code forks: they have a copy of the worker, and must not continue as a worker."""

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn


def end_fork(error: BaseException | None = None) -> NoReturn:
    """Ends a process that job code forked, where the job's code ends; only the parent reports the outcome."""
    status = _status(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


def _status(error: BaseException | None) -> int:
    """The exit status of a Python program that raised this exception."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        with suppress(Exception):
            traceback.print_exception(error)
        return 1
    return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
