"""Submits to several nodes: routing, and one reply in the order of the drafts."""

import os
from collections.abc import AsyncIterator

import pytest

from holdfast import limits
from holdfast.client.node_set import NodeSet
from holdfast.client.routed_jobs import RoutedJobs
from holdfast.client.routed_submits import joined, split
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import Extra, Template
from holdfast.core.owner import mint_owned, owner_index
from holdfast.errors import Code, InvalidArgumentError, UnavailableError, UnimplementedError
from holdfast.ports import JobDraft

#: No server listens at these addresses.
ADDRESSES = [f"127.0.0.1:{port}" for port in range(1, 7)]


@pytest.fixture
async def nodes() -> AsyncIterator[NodeSet]:
    """Six nodes that do not exist."""
    nodes = NodeSet(ADDRESSES)
    yield nodes
    await nodes.close()


@pytest.mark.parametrize(
    ("draft", "key"),
    [
        (JobDraft(extra=Extra(request_id="order-17")), "order-17"),
        (JobDraft(extra=Extra(request_id="abc", unique_key="order-17")), "abc"),
        (JobDraft(extra=Extra(unique_key="order-17")), "order-17"),
        (JobDraft(id="f47ac10b-58cc-4372-a567-0e02b2c3d479"), "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
        (JobDraft(id="f47ac10b-58cc-4372-a567-0e02b2c3d479", extra=Extra(request_id="abc")), "abc"),
        (JobDraft(extra=Extra(request_id="größe")), "größe"),
    ],
    ids=["request", "request-first", "unique", "id", "request-before-id", "utf-8"],
)
async def test_draft_goes_to_the_owner_of_its_key(nodes: NodeSet, draft: JobDraft, key: str) -> None:
    """The owner is chosen by the request id, else by the unique key, else by the job id."""
    known = {"order-17": 2, "abc": 0, "f47ac10b-58cc-4372-a567-0e02b2c3d479": 1, "größe": 3}
    parts = await split(nodes, [draft])
    assert list(parts) == [known[key]]


async def test_draft_with_a_unique_key_gets_an_id_of_its_owner(nodes: NodeSet) -> None:
    """A draft with a unique key gets a job id of its owner, so that a retry after the job's end finds that job."""
    ((index, [(_, named)]),) = (await split(nodes, [JobDraft(extra=Extra(unique_key="order-17"))])).items()
    assert (index, owner_index(named.id, 6)) == (2, 2)


async def test_draft_with_a_request_id_leaves_its_id_to_the_node(nodes: NodeSet) -> None:
    """A draft with a request id gets no job id from the client."""
    ((_, [(_, named)]),) = (await split(nodes, [JobDraft(extra=Extra(request_id="order-17"))])).items()
    assert named.id == ""


async def test_drafts_of_one_owner_keep_their_order(nodes: NodeSet) -> None:
    """The drafts of one node are in submit order, each with its index in the submit."""
    drafts = [JobDraft(payload=str(n).encode(), extra=Extra(request_id=f"r-{n}")) for n in range(60)]
    parts = await split(nodes, drafts)
    assert sorted(place for part in parts.values() for place, _ in part) == list(range(60))
    for index, part in parts.items():
        places = [place for place, _ in part]
        assert places == sorted(places)
        assert {owner_index(f"r-{place}", 6) for place in places} == {index}
        assert all(drafts[place] == draft for place, draft in part)


def part(*places: int) -> list[tuple[int, JobDraft]]:
    """Returns drafts of one node."""
    return [(place, JobDraft()) for place in places]


def test_answers_are_put_together_in_order() -> None:
    """The joined reply lists ids, refusals and existing jobs by the indexes of the drafts."""
    refusal = Refusal(Code.INVALID_ARGUMENT, "BAD", "it is bad")
    one = Submitted(["a", "", "c"], 7, {1: refusal}, frozenset({2}))
    two = Submitted(["d", "e"], 9, {}, frozenset({0}))
    whole = joined(5, [part(0, 2, 4), part(1, 3)], [one, two])
    assert whole == Submitted(["a", "d", "", "e", "c"], 9, {2: refusal}, frozenset({4, 1}))


def test_node_that_does_not_answer_makes_its_own_drafts_unavailable() -> None:
    """If a node does not reply, only its own drafts are refused as UNAVAILABLE."""
    whole = joined(3, [part(0, 2), part(1)], [Submitted(["a", "c"], 1, {}), UnavailableError("away", reason="GONE")])
    assert whole.job_ids == ["a", "", "c"]
    assert (whole.refusals[1].code, whole.refusals[1].reason) == (Code.UNAVAILABLE, "GONE")


def test_error_of_all_nodes_is_raised() -> None:
    """If no node replies, the submit raises the error."""
    with pytest.raises(UnavailableError):
        joined(2, [part(0), part(1)], [UnavailableError("away"), UnavailableError("away")])


def test_error_that_cannot_pass_is_raised() -> None:
    """An error that is not retryable, such as an invalid template, fails the whole submit."""
    with pytest.raises(InvalidArgumentError):
        joined(2, [part(0), part(1)], [InvalidArgumentError("bad"), UnavailableError("away")])


@pytest.mark.parametrize("count", [0, limits.BATCH_JOBS_MAX + 1])
async def test_size_of_a_submission_is_that_of_the_whole(count: int) -> None:
    """The batch limit holds for the whole submit, not for each node."""
    async with RoutedJobs(ADDRESSES) as jobs:
        with pytest.raises(InvalidArgumentError) as caught:
            await jobs.submit([Template("t")], [JobDraft()] * count)
    assert caught.value.reason == "BATCH_SIZE_INVALID"


async def test_key_that_is_no_text_is_refused() -> None:
    """A key that cannot be encoded as UTF-8 is refused."""
    async with RoutedJobs(ADDRESSES) as jobs:
        with pytest.raises(InvalidArgumentError):
            await jobs.get("\ud800")


async def test_feed_over_several_nodes_is_unimplemented() -> None:
    """A feed over several nodes is UNIMPLEMENTED, and the message suggests a single node."""
    async with RoutedJobs(ADDRESSES) as jobs:
        with pytest.raises(UnimplementedError) as caught:
            jobs.feed(None)
    assert "a single node" in caught.value.message


async def test_submit_that_no_node_accepts_is_unavailable() -> None:
    """If no node accepts a job without keys, the error names the addresses that were tried."""
    async with RoutedJobs(ADDRESSES[:2]) as jobs:
        with pytest.raises(UnavailableError) as caught:
            await jobs.submit([Template("t")], [JobDraft()])
    assert "127.0.0.1:" in caught.value.message


def test_ids_of_a_client_are_owned_by_the_node_they_are_for() -> None:
    """A client can mint an id for any chosen owner."""
    for nodes in range(1, 8):
        for index in range(nodes):
            assert owner_index(next(mint_owned(os.urandom, index, nodes)), nodes) == index
