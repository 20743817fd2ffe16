"""Cursors: they round-trip, and only the query that created a cursor accepts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.cursors import cursor_at, place_in
from holdfast.core.lifecycle import State
from holdfast.ports import JobQuery

QUERY = JobQuery(states=frozenset({State.QUEUED, State.DONE}), labels={"b": "1", "a": "\udc80"})
PLACE = 1_700_000_000_000, "job-7"


@given(st.tuples(st.integers(0, 1 << 62), st.text(max_size=20).filter(lambda text: text.isprintable())))
def test_place_comes_back(place: tuple[int, str]) -> None:
    """A cursor decodes to the position from which it was made."""
    assert place_in(cursor_at(place, QUERY), tuple[int, str], QUERY) == place


def test_order_in_which_a_query_was_written_does_not_count() -> None:
    """The order of labels and states does not distinguish two queries."""
    same = JobQuery(states=frozenset({State.DONE, State.QUEUED}), labels={"a": "\udc80", "b": "1"})
    assert place_in(cursor_at(PLACE, QUERY), tuple[int, str], same) == PLACE


@pytest.mark.parametrize(
    "other",
    [
        JobQuery(),
        JobQuery(states=QUERY.states, labels=QUERY.labels, oldest_first=True),
        JobQuery(states=QUERY.states, labels=QUERY.labels, queue="q"),
        JobQuery(states=frozenset({State.DONE}), labels=QUERY.labels),
    ],
)
def test_cursor_of_another_query_is_refused(other: JobQuery) -> None:
    """A query refuses a cursor of a query with other filters or another direction."""
    assert place_in(cursor_at(PLACE, QUERY), tuple[int, str], other) is None


@pytest.mark.parametrize(
    "text", ["x", "é", "====", "AAAA", "kZGR" * 5_000, cursor_at(["a", None], QUERY), cursor_at(PLACE, QUERY) + "A"]
)
def test_cursor_that_no_search_returned_is_refused(text: str) -> None:
    """A query refuses a cursor that is invented, that holds another type of position or that was modified."""
    assert place_in(text, tuple[int, str], QUERY) is None
