"""Types of waiting jobs that no worker knows."""

from holdfast import limits
from holdfast.core.model import QueueMode
from holdfast.core.overview import QueueView, most_common
from holdfast.core.unknown_types import unknown_types, unknown_types_text


def queue(name: str, **types: int) -> QueueView:
    return QueueView(name, QueueMode.OPEN, "", sum(types.values()), 0, 0, 0, types)


def test_unknown_types_are_counted_over_all_queues() -> None:
    """The type with the most waiting jobs comes first, and types that a worker knows are left out."""
    queues = [queue("a", mail=1, old=2, known=9), queue("b", old=3, mail=1)]
    assert list(unknown_types(queues, {"known"}).items()) == [("old", 5), ("mail", 2)]


def test_sentence_names_the_types_and_their_jobs() -> None:
    """The sentence names each type with its number of jobs, and counts the types beyond eight."""
    one = unknown_types_text({"old.name": 1})
    assert one == "1 job waits of a type that no connected worker knows: old.name (1)"
    many = unknown_types_text({f"t{number}": 1_000 for number in range(10)})
    assert many.startswith("10,000 jobs wait of types that no connected worker knows: t0 (1,000), t1")
    assert many.endswith("t7 (1,000) and 2 more")


def test_view_names_only_the_most_frequent_types() -> None:
    """However many types wait, the view of a queue names only the most frequent ones."""
    types = {f"t{number}": number for number in range(limits.QUEUE_TYPES_MAX + 5)}
    assert set(types) - set(most_common(types)) == {"t0", "t1", "t2", "t3", "t4"}


def test_bounded_count_is_told_as_such() -> None:
    """A count that reaches the limit of types per queue is reported as `at least`."""
    types = {f"type-{number}": 1 for number in range(limits.QUEUE_TYPES_MAX)}
    assert unknown_types_text(types).startswith("at least 100 jobs wait of types")
    assert unknown_types_text({"one": 3}).startswith("3 jobs wait of a type")
