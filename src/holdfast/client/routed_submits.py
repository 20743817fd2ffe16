"""A submit to several nodes: split by owner, sent concurrently, and answered as one.

A draft is routed by its request id, which a repeated submit has too; otherwise by its unique key, so that the key is
unique over all nodes; otherwise by its job id. A draft with none of them goes to the next node in turn, with a new id
that this node owns. So every part can be retried at its node without creating a second job, and a draft that a node may
have accepted is never sent to another node.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.client.node_set import Node, NodeSet
from holdfast.client.retry_policy import RETRYABLE
from holdfast.core.commands import Refusal, Submitted
from holdfast.core.model import Template
from holdfast.core.validation import check_batch
from holdfast.errors import HoldfastError, error_class
from holdfast.ports import JobDraft

#: The drafts for one node, each with its index in the submit.
Part = list[tuple[int, JobDraft]]


async def submit(nodes: NodeSet, templates: Sequence[Template], drafts: Sequence[JobDraft]) -> Submitted:
    """Submits all drafts; a draft whose node did not answer gets a refusal with that node's error."""
    if refusal := check_batch([draft.payload for draft in drafts], len(templates)):
        raise refusal.error()
    parts = await split(nodes, drafts)
    answers = await asyncio.gather(
        *(_send(nodes[index], templates, part) for index, part in parts.items()), return_exceptions=True
    )
    return joined(len(drafts), list(parts.values()), answers)


async def split(nodes: NodeSet, drafts: Sequence[JobDraft]) -> dict[int, Part]:
    """Returns the drafts for each node, in their order."""
    keys = [_key(draft) for draft in drafts]
    free = await nodes.in_turn(keys.count("")) if "" in keys else []
    turns = iter(free)
    parts: dict[int, Part] = {}
    for place, (key, draft) in enumerate(zip(keys, drafts, strict=True)):
        node = nodes.owner(key) if key else next(turns)
        if key and node.index not in parts:
            await node.is_there()  # raises if it is not the node of the list; no answer is handled by the send
        parts.setdefault(node.index, []).append((place, _named(draft, node)))
    return parts


def _key(draft: JobDraft) -> str:
    """Returns the routing key of a draft; empty if it may go to any node."""
    extra = draft.extra
    return ((extra.request_id or extra.unique_key) if extra else "") or draft.id


def _named(draft: JobDraft, node: Node) -> JobDraft:
    """Adds an id that the node owns, unless the draft has an id or a request id."""
    is_found_again = draft.id or (draft.extra is not None and draft.extra.request_id)
    return draft if is_found_again else msgspec.structs.replace(draft, id=node.mint())


async def _send(node: Node, templates: Sequence[Template], part: Part) -> Submitted:
    drafts = [draft for _, draft in part]
    try:
        return await node.jobs.submit(templates, drafts)
    except HoldfastError as error:
        if error.code not in RETRYABLE or not drafts[0].id:
            raise
        message = f"{error.message} (whether job {drafts[0].id} was accepted there is unknown)"
        raise error_class(error.code)(message, reason=error.reason) from error


def joined(count: int, parts: Sequence[Part], answers: Sequence[Submitted | BaseException]) -> Submitted:
    """Merges the answers in the order of the drafts. Raises an error that is not retryable, or if every node failed."""
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in errors:
        if len(errors) == len(answers) or not (isinstance(error, HoldfastError) and error.code in RETRYABLE):
            raise error
    job_ids, at_ms, existing = [""] * count, 0, set[int]()
    refusals: dict[int, Refusal] = {}
    for part, answer in zip(parts, answers, strict=True):
        places = [place for place, _ in part]
        if isinstance(answer, HoldfastError):
            refusals.update(dict.fromkeys(places, Refusal(answer.code, answer.reason, answer.message)))
        elif isinstance(answer, Submitted):
            at_ms = max(at_ms, answer.at_ms)
            existing.update(places[index] for index in answer.existing)
            refusals.update({places[index]: refusal for index, refusal in answer.refusals.items()})
            for place, job_id in zip(places, answer.job_ids, strict=True):
                job_ids[place] = job_id
    return Submitted(job_ids, at_ms, refusals, frozenset(existing))
