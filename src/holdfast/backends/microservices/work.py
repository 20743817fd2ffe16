"""`WorkApi` over the three unary calls of the coordinator service."""

import re

from holdfast import limits
from holdfast.backends.microservices.coordinator_calls import CoordinatorCalls
from holdfast.backends.microservices.owners import Metadata
from holdfast.backends.microservices.session import UnarySession
from holdfast.backends.ports import Introduction
from holdfast.client.channel import open_channel
from holdfast.errors import InvalidArgumentError

_NAME = re.compile(limits.NAME_PATTERN)


class UnaryWork:
    """Opens sessions with the coordinator at `host:port`. `metadata` says who calls, where it asks for that."""

    def __init__(self, target: str, metadata: Metadata = (), heartbeat_ms: int = 0) -> None:
        """`heartbeat_ms` is how often to beat at least; 0: as often as the coordinator says."""
        self._target = target
        self._metadata = metadata
        self._heartbeat_ms = heartbeat_ms

    async def open(self, introduction: Introduction) -> UnarySession:
        """The first heartbeat; each session has a channel of its own, so that none inherits a bad one."""
        check_names(introduction)
        calls = CoordinatorCalls(open_channel(self._target), introduction, self._metadata)
        session = UnarySession(calls, introduction, self._heartbeat_ms)
        try:
            await session.start()
        except BaseException:
            await calls.close()
            raise
        return session


def check_names(introduction: Introduction) -> None:
    """What can never be right is told before anybody is asked."""
    for what, names in (
        ("worker_id", {introduction.worker_id}),
        ("types", introduction.types),
        ("queues", introduction.queues),
    ):
        for name in names:
            if not _NAME.fullmatch(name):
                rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
                raise InvalidArgumentError(f"expected {what} to be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
