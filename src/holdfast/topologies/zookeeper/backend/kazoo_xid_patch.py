"""Answers that belong to no question.

A server that has just changed its leader may leave a question out and answer the next. The library ends its thread
then, and with it the connection for good. It is a lost connection like any other: whatever was asked is unknown, and
the session goes on elsewhere. The library has no public name for it, and its version is pinned.
"""

from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped


def drop_if_misread(client: KazooClient) -> None:
    """Whatever the library cannot make sense of ends the connection, and not its thread."""
    handler = client._connection  # noqa: SLF001 - there is no other way, and the version is pinned
    read = handler._read_response  # noqa: SLF001

    def reading(header: Any, buffer: Any, offset: int) -> Any:  # noqa: ANN401 - as the library has it
        try:
            return read(header, buffer, offset)
        except (RuntimeError, LookupError) as error:
            raise ConnectionDropped(f"an answer makes no sense: {error}") from error

    handler._read_response = reading  # noqa: SLF001
