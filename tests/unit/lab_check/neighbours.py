"""Pairs of a violation and the nearest history without one: both are planted in the sound history."""

from collections.abc import Callable

from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import sound

Change = Callable[[Changed], None]
#: The rule, the job, the change that breaks it, and the change that makes the history harmless again.
Neighbours = tuple[str, str, Change, Change]


def suspects(it: Changed, rule: str) -> list[str]:
    """Returns the jobs of a rule's findings."""
    return [finding.job_id for finding in it.judge().ruling(rule).findings]


def tell_apart(rule: str, job_id: str, plant: Change, excuse: Change) -> None:
    """Asserts that the rule finds only this job, and nothing once the excuse is applied."""
    it = Changed(*sound())
    plant(it)
    assert suspects(it, rule) == [job_id]
    excuse(it)
    assert suspects(it, rule) == []


def names_of(pairs: list[Neighbours]) -> list[str]:
    return [f"{plant.__name__}-{excuse.__name__}" for _, _, plant, excuse in pairs]
