"""The message about a job that does not exist."""

from uuid import uuid4

from holdfast.core.tasks import unknown_job


def test_part_of_an_id_is_answered_with_the_form_of_an_id() -> None:
    """The message about a short id describes a complete id, and the message about a complete id does not."""
    whole = str(uuid4())
    assert unknown_job(whole).message == f"no job '{whole}': it never existed, or it finished and was removed"
    part = unknown_job(whole[:8]).message
    assert part.startswith(
        f"no job '{whole[:8]}': it never existed, or it finished and was removed; a complete id has "
    )
