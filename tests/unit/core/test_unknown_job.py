"""What is said of a job that is not there."""

from uuid import uuid4

from holdfast.core.tasks import unknown_job


def test_part_of_an_id_is_answered_with_the_form_of_an_id() -> None:
    """A short id is told how long an id is, with an example; a whole id is not."""
    whole = str(uuid4())
    assert unknown_job(whole).message == f"no job '{whole}': it never existed, or its retention is over"
    part = unknown_job(whole[:8]).message
    assert part.startswith(f"no job '{whole[:8]}': it never existed, or its retention is over; a whole id has 36 char")
