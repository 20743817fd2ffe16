"""A violation, and the nearest history that breaks nothing: both are planted in the sound one."""

from collections.abc import Callable

from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import sound

Change = Callable[[Changed], None]
#: The rule, the job, what breaks it, and what makes the same history harmless once more.
Neighbours = tuple[str, str, Change, Change]


def suspects(it: Changed, rule: str) -> list[str]:
    """The jobs that a rule found something of."""
    return [finding.job_id for finding in it.judge().ruling(rule).findings]


def tell_apart(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """Asserts that the rule finds this job and no other, and nothing any more once it has its excuse."""
    it = Changed(*sound())
    plant(it)
    assert suspects(it, rule) == [job_id]
    excuse(it)
    assert suspects(it, rule) == []


def names_of(pairs: list[Neighbours]) -> list[str]:
    return [f"{plant.__name__}-{excuse.__name__}" for _, _, plant, excuse in pairs]
