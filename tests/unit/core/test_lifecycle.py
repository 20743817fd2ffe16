"""The table of legal state transitions."""

import itertools
from pathlib import Path

import pytest

from holdfast.core import lifecycle
from holdfast.core.events import CancelAccepted, Granted
from holdfast.core.lifecycle import LEGAL, NOWHERE, TERMINAL, TRANSITIONS, IllegalTransitionError, State
from holdfast_lab.simulation import model
from tests.unit.core.ledger_driver import LedgerDriver

EVERYWHERE = [NOWHERE, *State]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(EVERYWHERE, State)))
def test_only_moves_of_the_table_are_legal(source: int, target: int) -> None:
    """`check` accepts the rows of the table and raises for every other pair."""
    if (source, target) in LEGAL:
        lifecycle.check(source, target)
    else:
        with pytest.raises(IllegalTransitionError, match="no transition"):
            lifecycle.check(source, target)


def test_table_and_model_agree_on_every_move() -> None:
    """The model's separate table of transitions allows the same moves between states."""
    assert {move for move in LEGAL if move[0] != NOWHERE} == model.MOVES


def test_nothing_leaves_a_terminal_state() -> None:
    """No row of the table starts in DONE, FAILED or CANCELED."""
    assert not [row for row in TRANSITIONS if row.source in TERMINAL]


def test_every_state_can_be_reached_and_left_unless_terminal() -> None:
    """Each state is the target of a row, and each state that is not terminal is the source of one."""
    assert {row.target for row in TRANSITIONS} == set(State)
    assert {row.source for row in TRANSITIONS if row.source} == set(State) - TERMINAL


def test_state_numbers_are_those_of_the_contract() -> None:
    """The numbers of the states on the wire and on disk are fixed."""
    assert [(state.name, state.value) for state in State] == [
        ("QUEUED", 1),
        ("RUNNING", 2),
        ("DONE", 3),
        ("FAILED", 4),
        ("CANCELED", 5),
    ]


def test_illegal_grant_raises_and_changes_nothing(driver: LedgerDriver) -> None:
    """A grant of a finished job raises, and the job and the digest do not change."""
    driver.submit("a")
    driver.finish("a")
    before = driver.job("a").state, driver.ledger.digest, driver.ledger.position
    with pytest.raises(IllegalTransitionError):
        driver.ledger.apply(Granted(driver.log_ms, "w1", 1_000, 2, ["a"]))
    assert (driver.job("a").state, driver.ledger.digest, driver.ledger.position) == before


def test_illegal_cancel_raises_and_changes_nothing(driver: LedgerDriver) -> None:
    """A cancel of a finished job raises, and the job and the digest do not change."""
    driver.submit("a")
    driver.finish("a")
    before = driver.job("a").state, driver.job("a").cancel_requested, driver.ledger.digest
    with pytest.raises(IllegalTransitionError):
        driver.ledger.apply(CancelAccepted(driver.log_ms, "a", State.CANCELED, ""))
    assert (driver.job("a").state, driver.job("a").cancel_requested, driver.ledger.digest) == before


def test_lifecycle_document_is_up_to_date(root: Path) -> None:
    """`docs/lifecycle.md` equals the generated table, which `make docs` writes."""
    assert (root / "docs" / "lifecycle.md").read_text() == lifecycle.to_markdown()


def test_document_has_every_transition() -> None:
    """The diagram and the table of the document have one line for each row."""
    text = lifecycle.to_markdown()
    for row in TRANSITIONS:
        assert f"--> {row.target.name}: {row.trigger}\n" in text
        assert row.note in text
