"""Golden scenarios: sequences of commands whose traces must not change unnoticed."""

from pathlib import Path

import pytest

from tests.scenarios.script import run

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_still_leads_to_its_trace(path: Path, *, is_rewriting: bool) -> None:
    """The commands of a scenario produce the events, replies and states in its file."""
    text = path.read_text()
    if is_rewriting:
        path.write_text(run(text))
        return
    assert run(text) == text


def test_a_changed_trace_is_noticed() -> None:
    """A scenario with a wrong trace does not reproduce itself."""
    told = "submit a\n----\n> created at 1: nothing\n"
    assert run(told) != told
    assert run(run(told)) == run(told)


def test_there_is_a_scenario_for_every_promise() -> None:
    """Every scenario that the guarantees refer to exists."""
    expected = {
        "cancel-queued",
        "cancel-running",
        "dedup-and-conflict",
        "delayed-job",
        "heartbeats",
        "late-result-refused",
        "loss-budget",
        "priorities-with-aging",
        "queues-and-routes",
        "restart-with-leases",
        "retention",
        "retry-then-fail",
        "submit-run-done",
        "worker-lost",
    }
    assert expected <= {path.stem for path in FILES}
