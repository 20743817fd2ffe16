"""Commands, replies and events of the records; the events are the entries of the job service's journal.

The tags and the order of fields are part of the format on disk, as in core/events.py, whose `Created`, `Evicted` and
`Retired` are used here too.
"""

from enum import IntEnum

import msgspec

from holdfast.core.events import Created, Event, Evicted, Retired
from holdfast.core.lifecycle import State


class SpentBudget(IntEnum):
    """The budget of a job that an attempt has used; the numbers are those of the internal contract."""

    NOTHING = 0
    FAILURE = 1
    LOSS = 2


class Shared(Event, frozen=True, tag=101):
    """A second submission found this job: another client may know that it exists."""

    job_id: str


class Deleted(Event, frozen=True, tag=102):
    """The submission that created this job was undone."""

    job_id: str


class Moved(Event, frozen=True, tag=103):
    """A job changed its state; `token` is that of the grant that begins or ends, 0 if there was none."""

    job_id: str
    state: int
    token: int = 0
    worker: str = ""
    reason: str = ""
    #: The due time of a returned job; 0 leaves it as it was.
    not_before_ms: int = 0
    spends: SpentBudget = SpentBudget.NOTHING


class CancelRequested(Event, frozen=True, tag=104):
    """A cancel was requested for this job."""

    job_id: str
    reason: str


RecordEvent = Created | Evicted | Retired | Shared | Deleted | Moved | CancelRequested


class Move(msgspec.Struct, frozen=True):
    """Moves a job from `source` to `target`, if it is in `source` and the token is current (0: any token)."""

    job_id: str
    source: State
    target: State
    token: int = 0
    worker: str = ""
    reason: str = ""
    not_before_ms: int = 0
    spends: SpentBudget = SpentBudget.NOTHING


class MoveReply(msgspec.Struct, frozen=True):
    """Whether the job moved, its current state, and the token of a new grant; `why_not` is for programs.

    The other fields are for the log: the state before, the worker of the grant, and the number of the attempt.
    """

    applied: bool
    state: State
    token: int = 0
    why_not: str = ""
    before: State | None = None
    worker: str = ""
    attempt: int = 0
    priority: int = 0


class CreateReply(msgspec.Struct, frozen=True):
    """The record of a submission; `is_new` if the submission created it."""

    job_id: str
    state: State
    created_ms: int
    number: int
    is_new: bool


class RecordDecision(msgspec.Struct, frozen=True):
    """One event or none, and the reply once it is durable."""

    event: RecordEvent | None
    reply: object = None
