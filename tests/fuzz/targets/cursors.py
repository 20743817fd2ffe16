"""Cursors: any text decodes to a position that this query has returned, or to None."""

from typing import Any

from holdfast.core.cursors import cursor_at, place_in
from tests.fuzz.source import Source

_KINDS: tuple[Any, ...] = (tuple[int, str], list[str | None])
_QUERIES = (None, {"queue": "default", "states": [1, 2]}, ("a", 1))


def seeds() -> list[bytes]:
    """Cursors of each kind."""
    given = [
        (0, cursor_at((1_700_000_000_000, "0123456789abcdef"), _QUERIES[0])),
        (1, cursor_at(["a", None, "b"], _QUERIES[1])),
        (0, cursor_at((-1, "é"), _QUERIES[2])),
    ]
    return [bytes([kind, query]) + text.encode() for query, (kind, text) in enumerate(given)]


def fuzz(data: bytes) -> None:
    """Decodes a cursor."""
    source = Source(data)
    kind, query = source.pick(_KINDS), source.pick(_QUERIES)
    text = source.rest().decode("utf-8", "surrogateescape")
    place = place_in(text, kind, query)
    if place is not None:
        assert cursor_at(place, query) == text
        others = [other for other in _QUERIES if other != query]
        assert all(place_in(text, kind, other) is None for other in others), "a cursor of another query was taken"
