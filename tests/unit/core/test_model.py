"""Tests of the model itself: it must reject every broken guarantee, or it proves nothing."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast_lab.simulation.model import CANCELED, DONE, FAILED, QUEUED, RUNNING, Model, ModelViolation


def template(queue: str = "default", priority: int = 5, max_attempts: int = 1, max_losses: int = 3) -> list[Any]:
    return ["echo", queue, priority, max_attempts, max_losses, 0, [1, 1_000, 1_000], False]


def created(at_ms: int, *ids: str, key: str = "", due_ms: int = 0, **options: Any) -> list[Any]:  # noqa: ANN401
    extra = [key, [], [], 0, 0, ""] if key else None
    return [2, at_ms, [template(**options)], [[job_id, 0, b"", due_ms, extra] for job_id in ids]]


def granted(at_ms: int, token: int, *ids: str, worker: str = "w1") -> list[Any]:
    return [3, at_ms, worker, 1_000, token, list(ids)]


def extended(at_ms: int, *tokens: int, worker: str = "w1") -> list[Any]:
    return [4, at_ms, worker, 1_000, list(tokens)]


def revoked(at_ms: int, token: int, state: int, reason: str = "expired", *, is_spent: bool = True) -> list[Any]:
    return [5, at_ms, "w1", reason, [[token, state, is_spent]]]


def reported(at_ms: int, token: int, state: int, worker: str = "w1", due_ms: int = 0) -> list[Any]:
    return [6, at_ms, worker, [[token, state, b"", "", "", 0, due_ms]], []]


def refused(at_ms: int, job_id: str, token: int, reason: str, worker: str = "w1") -> list[Any]:
    return [6, at_ms, worker, [], [[job_id, token, reason]]]


def canceled(at_ms: int, job_id: str, state: int) -> list[Any]:
    return [7, at_ms, job_id, state, ""]


def moded(at_ms: int, queue: str, mode: int, reason: str = "") -> list[Any]:
    return [9, at_ms, queue, mode, reason]


def purged(at_ms: int, *ids: str) -> list[Any]:
    return [10, at_ms, list(ids), ""]


def noted(at_ms: int, *notes: list[Any], worker: str = "w1") -> list[Any]:
    return [11, at_ms, worker, list(notes)]


def unique(at_ms: int, job_id: str, key: str) -> list[Any]:
    return [2, at_ms, [template()], [[job_id, 0, b"", 0, ["", [], [], 0, 0, "", key]]]]


def evicted(at_ms: int, count: int) -> list[Any]:
    return [8, at_ms, count]


def fed(*stream: list[Any], **options: Any) -> Model:  # noqa: ANN401
    model = Model(**options)
    for position, event in enumerate(stream, 1):
        model.feed(msgspec.msgpack.encode([event]), position)
    return model


RUN = [created(1, "a", "b"), granted(2, 1, "a")]
DONE_A = [*RUN, reported(3, 1, DONE)]
RETRIED = [created(1, "a", max_attempts=2), granted(2, 1, "a")]

BROKEN: dict[str, list[list[Any]]] = {
    "log time goes back": [created(5, "a"), created(4, "b")],
    "epoch comes twice": [[1, 1, 3], [1, 1, 3]],
    "tag is unknown": [[99, 1]],
    "queue gets a mode that is none": [moded(1, "q", 4)],
    "queue gets the mode that it has": [moded(1, "q", 2), moded(2, "q", 2)],
    "open queue is opened": [moded(1, "q", 1)],
    "reason of a mode is too long": [moded(1, "q", 2, "x" * 1_025)],
    "paused queue grants": [created(1, "a"), moded(2, "default", 2), granted(3, 1, "a")],
    "draining queue takes a job": [moded(1, "default", 3), created(2, "a")],
    "unique key is held by two": [unique(1, "a", "u"), unique(2, "b", "u")],
    "running job is canceled as if it waited": [*RUN, purged(3, "a")],
    "job is canceled twice at once": [created(1, "a"), purged(2, "a", "a")],
    "nothing is canceled": [created(1, "a"), purged(2)],
    "note comes from another": [*RUN, noted(3, ["a", 1, 5, "", []], worker="w2")],
    "note comes under no lease": [*DONE_A, noted(4, ["a", 1, 5, "", []])],
    "note is said to be of another": [*RUN, noted(3, ["b", 1, 5, "", []])],
    "note is out of range": [*RUN, noted(3, ["a", 1, 1_001, "", []])],
    "note is too long": [*RUN, noted(3, ["a", 1, 0, "", ["x" * 1_025]])],
    "note says nothing": [*RUN, noted(3)],
    "id is used twice": [created(1, "a"), created(2, "a")],
    "id is used twice in one batch": [created(1, "a", "a")],
    "key is used twice": [created(1, "a", key="k"), created(2, "b", key="k")],
    "priority is out of range": [created(1, "a", priority=10)],
    "job has no attempts": [created(1, "a", max_attempts=0)],
    "submission is empty": [created(1)],
    "job due in two years": [created(1, "a", due_ms=2 * 366 * 86_400_000)],
    "unknown job is granted": [granted(1, 1, "a")],
    "running job is granted": [*RUN, granted(3, 2, "a")],
    "finished job is granted": [*DONE_A, granted(4, 2, "a")],
    "job is granted twice in one event": [created(1, "a", "b"), granted(2, 1, "a", "a")],
    "canceled job is granted": [created(1, "a"), canceled(2, "a", CANCELED), granted(3, 1, "a")],
    "job is granted before its time": [created(1, "a", due_ms=10), granted(9, 1, "a")],
    "younger job is granted first": [created(1, "a", "b"), granted(2, 1, "b")],
    "order is turned around inside a grant": [created(1, "a", "b"), granted(2, 1, "b", "a")],
    "returned job is skipped": [*RUN, revoked(3, 1, QUEUED), granted(4, 2, "b")],
    "due job is skipped": [created(1, "a", due_ms=5), created(2, "b"), granted(5, 1, "b")],
    "token comes twice": [*RUN, granted(3, 1, "b")],
    "token goes back": [created(1, "a", "b"), granted(2, 5, "a"), granted(3, 4, "b")],
    "lease is for no time": [created(1, "a"), [3, 2, "w1", 0, 1, ["a"]]],
    "dead lease is extended": [*DONE_A, extended(4, 1)],
    "lease is extended by another worker": [*RUN, extended(3, 1, worker="w2")],
    "result comes under a dead lease": [*DONE_A, reported(4, 1, FAILED)],
    "result comes from another worker": [*RUN, reported(3, 1, DONE, worker="w2")],
    "result has no legal state": [*RUN, reported(3, 1, RUNNING)],
    "unrequested cancel ends a job": [*RUN, reported(3, 1, CANCELED)],
    "failure is retried without attempts left": [*RUN, reported(3, 1, QUEUED, due_ms=3)],
    "retry is due in the past": [*RETRIED, reported(3, 1, QUEUED, due_ms=2)],
    "canceled job is retried": [*RETRIED, canceled(3, "a", RUNNING), reported(4, 1, QUEUED, due_ms=4)],
    "canceled job is requeued": [*RUN, canceled(3, "a", RUNNING), revoked(4, 1, QUEUED)],
    "job is lost once too often": [created(1, "a", max_losses=0), granted(2, 1, "a"), revoked(3, 1, QUEUED)],
    "job fails while losses are left": [*RUN, revoked(3, 1, FAILED)],
    "expired lease is not counted": [*RUN, revoked(3, 1, QUEUED, is_spent=False)],
    "released lease is counted": [*RUN, revoked(3, 1, QUEUED, "released")],
    "lease ends for no known reason": [*RUN, revoked(3, 1, QUEUED, "tired")],
    "cancel of a running job ends it": [*RUN, canceled(3, "a", CANCELED)],
    "cancel of a queued job is only noted": [created(1, "a"), canceled(2, "a", RUNNING)],
    "cancel is accepted twice": [*RUN, canceled(3, "a", RUNNING), canceled(4, "a", RUNNING)],
    "finished job is canceled": [*DONE_A, canceled(4, "a", CANCELED)],
    "report under the live lease is called stale": [*RUN, refused(3, "a", 1, "STALE_TOKEN")],
    "known job is called unknown": [*RUN, refused(3, "a", 1, "UNKNOWN_JOB")],
    "holder is called a stranger": [*RUN, refused(3, "a", 1, "NOT_THE_HOLDER")],
    "running job is called finished": [*RUN, refused(3, "a", 1, "ALREADY_FINISHED")],
    "dead lease is called expired": [*DONE_A, refused(4, "a", 1, "LEASE_EXPIRED")],
    "report is refused without a known reason": [*RUN, refused(3, "a", 1, "NO")],
    "waiting jobs are forgotten": [created(1, "a"), evicted(2, 1)],
    "more jobs are forgotten than have finished": [*DONE_A, evicted(4, 2)],
}


@pytest.mark.parametrize("promise", BROKEN)
def test_model_objects_to_a_broken_promise(promise: str) -> None:
    """The model accepts each of these streams up to its last event, and rejects that one with its position."""
    stream = BROKEN[promise]
    fed(*stream[:-1])
    with pytest.raises(ModelViolation, match=f"at position {len(stream)}: "):
        fed(*stream)


def test_model_objects_to_a_skipped_priority_when_it_knows_the_aging() -> None:
    """A model that knows the aging also checks the order between priorities."""
    stream = [created(1, "low", priority=0), created(1, "high", priority=9), granted(2, 1, "low")]
    fed(*stream)
    for aging_ms in (0, 1_000):
        with pytest.raises(ModelViolation, match="overtook"):
            fed(*stream, aging_ms=aging_ms)


def test_model_objects_to_a_gap_in_the_stream() -> None:
    """The model rejects events with a gap or a repetition in their positions."""
    model = fed(created(1, "a"))
    for position in (1, 3):
        with pytest.raises(ModelViolation, match="continues at"):
            model.feed(msgspec.msgpack.encode([created(2, "b")]), position)


def test_model_does_not_object_to_a_whole_life() -> None:
    """The model accepts a valid stream in which all jobs end."""
    model = fed(
        [1, 1, 1],
        created(1, "a", max_attempts=2),
        created(1, "b", queue="other"),
        granted(2, 1, "b"),
        granted(2, 2, "a"),
        extended(3, 1, 2),
        reported(4, 2, QUEUED, due_ms=4),
        refused(5, "a", 2, "STALE_TOKEN"),
        granted(6, 3, "a"),
        reported(7, 3, FAILED),
        canceled(8, "b", RUNNING),
        revoked(9, 1, CANCELED),
    )
    assert model.unfinished == []
    assert list(model.finished) == ["a", "b"]
    assert model.leases == {}


def test_comparison_names_the_first_difference() -> None:
    """If an observed state differs, the message names the job and the field."""
    model = fed(*RUN)
    model.compare(model.view())
    observed: Any = model.view()
    observed["jobs"]["a"]["attempts"] = 2
    with pytest.raises(ModelViolation, match="the state, jobs, a, attempts: expected 1, observed 2"):
        model.compare(observed)


def test_comparison_notices_missing_and_added_entries() -> None:
    """The model rejects a state in which a job, a lease or a queue entry is missing or added."""
    for part, key in (("jobs", "b"), ("leases", 1), ("waiting", ("default", "echo", 5))):
        model = fed(*RUN)
        observed: Any = model.view()
        del observed[part][key]
        with pytest.raises(ModelViolation, match=part):
            model.compare(observed)
    with pytest.raises(ModelViolation, match="job x"):
        model.compare_job("x", {"id": "x"})
    with pytest.raises(ModelViolation, match="job a"):
        model.compare_jobs([("a", None)])


@pytest.mark.parametrize("name", ["model.py", "model_schedules.py"])
def test_model_shares_no_code_with_the_core(root: Path, name: str) -> None:
    """The model imports nothing of Holdfast but its own parts, so that it is independent of the core."""
    source = (root / "lab" / "src" / "holdfast_lab" / "simulation" / name).read_text()
    imports = re.findall(r"^\s*(?:from|import) (holdfast\S*)", source, re.MULTILINE)
    assert [module for module in imports if not module.startswith("holdfast_lab.simulation.model")] == []
