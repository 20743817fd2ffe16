"""Hypothesis strategies for inputs: seeds and stored inputs of a target with a few edits, and random bytes."""

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.target import Target

_SIZE_MAX = 1 << 16
_PLACES = st.integers(0, _SIZE_MAX)
_SIZES = st.sampled_from((0, 1, 4, 16, 64, 256, _SIZE_MAX))
#: Where to edit, how many bytes to remove, and which bytes to insert.
Edit = tuple[int, int, bytes]


def known_inputs(chosen: Target) -> list[bytes]:
    """The stored inputs of a target and its seeds."""
    return [*(path.read_bytes() for path in corpus.kept(chosen.name)), *chosen.seeds]


def inputs_near(known: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Known inputs with a few edits, and now and then random bytes."""
    inputs = st.sampled_from(known)
    overwritten = st.tuples(_PLACES, st.just(1), st.binary(min_size=1, max_size=1))
    replaced = st.tuples(_PLACES, _SIZES, st.one_of(st.binary(max_size=8), st.builds(_part, inputs, _PLACES, _SIZES)))
    edited = st.builds(_edited, inputs, st.lists(st.one_of(overwritten, replaced), max_size=5))
    return st.one_of(edited, edited, edited, st.binary(max_size=300))


def search_settings(count: int, *phases: Phase) -> settings:
    """Settings that try this many inputs, the same each time, however long one takes."""
    return settings(
        max_examples=count,
        phases=phases or tuple(Phase),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def _part(data: bytes, place: int, size: int) -> bytes:
    start = place % (len(data) + 1)
    return data[start : start + size]


def _edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Apply edits that Hypothesis has drawn; it has no strategy for bytes near a given input."""
    for place, size, new in edits:
        start = place % (len(data) + 1)
        data = data[:start] + new + data[start + size :]
    return data[:_SIZE_MAX]
