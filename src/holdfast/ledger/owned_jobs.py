"""`JobApi` of a node that owns a part of all ids.

Invariant: every job here has an id that this node owns, so that a client can find the node of a job by its id.
"""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.commands import CancelReply, Refusal, Submitted
from holdfast.core.model import Template
from holdfast.core.owner import Ownership, owner_index
from holdfast.core.progress import ProgressBoard
from holdfast.core.validation import is_given_id
from holdfast.core.workers import WorkerInfo
from holdfast.errors import Code, NotFoundError
from holdfast.ledger.coordinator import Coordinator
from holdfast.ledger.group_commit import Done
from holdfast.ledger.job_api import LedgerJobs
from holdfast.ledger.job_ids import owned_minter
from holdfast.ports import JobDraft


class OwnedJobs(LedgerJobs):
    """Creates ids that the node owns, and refuses other ids from clients."""

    def __init__(
        self,
        coordinator: Coordinator,
        workers: Callable[[], Sequence[WorkerInfo]],
        ownership: Ownership,
        *,
        progress: ProgressBoard | None = None,
    ) -> None:
        super().__init__(coordinator, workers, owned_minter(ownership), progress=progress)
        self._ownership = ownership

    def submit_then(self, templates: Sequence[Template], drafts: Sequence[JobDraft], done: Done) -> None:
        """Submits the drafts that this node owns with one command; refuses each draft with another owner."""
        foreign = {
            index: _not_the_owner(draft.id, self._ownership)
            for index, draft in enumerate(drafts)
            if draft.id and is_given_id(draft.id) and not self._ownership.owns(draft.id)
        }
        if not foreign:
            super().submit_then(templates, drafts, done)
            return
        kept = [index for index in range(len(drafts)) if index not in foreign]
        if not kept:
            done(Submitted([""] * len(drafts), 0, foreign))
            return

        def merged(reply: object) -> None:
            done(spread(reply, kept, foreign) if isinstance(reply, Submitted) else reply)

        super().submit_then(templates, [drafts[index] for index in kept], merged)

    def _missing(self, job_id: str) -> Refusal:
        """Returns a refusal that names the owner, if the job belongs to another node."""
        unknown = super()._missing(job_id)
        if not is_given_id(job_id) or self._ownership.owns(job_id):
            return unknown
        return msgspec.structs.replace(unknown, message=f"no such job here: {_whose(job_id, self._ownership)}")

    async def cancel(self, job_id: str, reason: str) -> CancelReply:
        """Cancels a job; the error for a job of another node names the owner."""
        try:
            return await super().cancel(job_id, reason)
        except NotFoundError:
            raise self._missing(job_id).error() from None


def spread(part: Submitted, places: Sequence[int], refusals: dict[int, Refusal]) -> Submitted:
    """Merges the answer about the drafts at `places` with the refusals of all other drafts."""
    job_ids = [""] * (len(places) + len(refusals))
    for place, job_id in zip(places, part.job_ids, strict=True):
        job_ids[place] = job_id
    refused = {places[index]: refusal for index, refusal in part.refusals.items()}
    return Submitted(job_ids, part.at_ms, {**refusals, **refused}, frozenset(places[index] for index in part.existing))


def _not_the_owner(job_id: str, ownership: Ownership) -> Refusal:
    message = f"{_whose(job_id, ownership)}, or submit without an id"
    return Refusal(Code.INVALID_ARGUMENT, "NOT_THE_OWNER", message)


def _whose(job_id: str, ownership: Ownership) -> str:
    owner = owner_index(job_id, ownership.nodes)
    where = f"belongs to node {owner} of {ownership.nodes}, and this is node {ownership.index}"
    return f"job id {job_id!r} {where}; connect to all nodes, in their order"
