"""`holdfast pipeline worker`, from its options on."""

import os
import sys

import msgspec

from holdfast.cli.worker import load_handlers, run_to_the_end
from holdfast.errors import InvalidArgumentError
from holdfast.observe import logging
from holdfast.observe.log_stream import BackgroundStream
from holdfast.process.lifeline import die_with_parent, lifeline
from holdfast.settings import Queues, Settings
from holdfast.topologies.pipeline.worker import WorkerPlace
from holdfast.topologies.pipeline.worker import work as work_on
from holdfast.worker.start_report import declared_by


def work(settings: Settings, place: WorkerPlace, queues: str, *, has_lifeline: bool) -> None:
    """Works to the end."""
    if has_lifeline:
        die_with_parent()
        lifeline()
    names = _names(queues)
    # What is secret in the environment is not for children of this process.
    os.environ.pop("HOLDFAST_DATABASE", None)
    app, handlers = load_handlers(settings.app)
    declared = declared_by(app, settings.app, handlers.keys())
    stream = BackgroundStream(sys.stderr.fileno())
    logging.configure(service="worker", level=settings.log_level, log_format=settings.log_format, stream=stream)
    try:
        ended = run_to_the_end(work_on(settings, place, handlers, names, declared, stream))
    finally:
        if app is not None and hasattr(app, "close"):
            app.close()
        stream.close()
    if ended.has_left_behind:
        sys.stdout.flush()
        os._exit(0)  # a coroutine that cannot be canceled would keep the process for ever


def _names(queues: str) -> frozenset[str]:
    try:
        return frozenset(name for name in msgspec.convert(queues, Queues).split(",") if name)
    except (msgspec.ValidationError, UnicodeEncodeError):
        message = f"expected --queues to be names of queues, with commas, got {queues!r}"
        raise InvalidArgumentError(message, reason="QUEUE_NAME_INVALID") from None
