"""What can be asked of the records, what is answered, and what happened: the entries of the job service's journal.

The tags and the order of fields are part of the format on disk, as in core/events.py, whose `Created`, `Evicted` and
`Retired` are used here too.
"""

from enum import IntEnum

import msgspec

from holdfast.core.events import Created, Event, Evicted, Retired
from holdfast.core.lifecycle import State


class Spends(IntEnum):
    """Which budget of a job an attempt has used; the numbers are those of the internal contract."""

    NOTHING = 0
    FAILURE = 1
    LOSS = 2


class Shared(Event, frozen=True, tag=101):
    """A second submission found this job: somebody else may have been told that it exists."""

    job_id: str


class Deleted(Event, frozen=True, tag=102):
    """Whoever made this job has undone that."""

    job_id: str


class Moved(Event, frozen=True, tag=103):
    """A job changed its state; `token` is that of the grant that begins or ends here, 0 where there was none."""

    job_id: str
    state: int
    token: int = 0
    worker: str = ""
    reason: str = ""
    #: When it is due, if it comes back; 0 leaves that as it was.
    not_before_ms: int = 0
    spends: Spends = Spends.NOTHING


class CancelRequested(Event, frozen=True, tag=104):
    """Somebody wants this job to stop."""

    job_id: str
    reason: str


RecordEvent = Created | Evicted | Retired | Shared | Deleted | Moved | CancelRequested


class Move(msgspec.Struct, frozen=True):
    """Take a job from one state to another, if it is in the first and this is its current grant (0: whichever is)."""

    job_id: str
    source: State
    target: State
    token: int = 0
    worker: str = ""
    reason: str = ""
    not_before_ms: int = 0
    spends: Spends = Spends.NOTHING


class MoveReply(msgspec.Struct, frozen=True):
    """Whether the job moved, its state now, and the token that the move made; `why_not` is for programs.

    The rest is for the log: what the job was before, whose grant it is about, and the number of that attempt.
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
    """The record that stands for the submission; `is_new` if it was made by it."""

    job_id: str
    state: State
    created_ms: int
    number: int
    is_new: bool


class Decided(msgspec.Struct, frozen=True):
    """One event or none, and what to say once it is durable."""

    event: RecordEvent | None
    reply: object = None
