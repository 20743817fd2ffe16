"""Errors of the journal.

Every message names the file, the problem and what to do next, because its reader has a server that does not start.
"""

from typing import Self

from holdfast.errors import Code, HoldfastError

REPAIR_COMMAND = "holdfast journal repair DIR"
# Advice for damage, from the worst case to the best.
RESTORE = "restore the directory from a backup: `holdfast journal restore BACKUP DIR`"
CUT = f"`{REPAIR_COMMAND}` cuts this last frame and keeps a copy"
REBUILD = f"`{REPAIR_COMMAND}` rebuilds it from the segments"


class JournalError(HoldfastError):
    """Base class of the journal's errors."""

    code = Code.INTERNAL


class JournalDamagedError(JournalError):
    """The contents of the disk differ from what was written; nothing was changed."""

    def __init__(self, file: str, offset: int, position: int, problem: str, *, advice: str = RESTORE) -> None:
        super().__init__(
            f"journal file {file!r} is damaged at offset {offset}, position {position}: {problem}."
            f" Nothing was changed; {advice}.",
            reason="JOURNAL_DAMAGED",
            details={"file": file, "offset": str(offset), "position": str(position)},
        )
        self.file = file
        self.offset = offset
        self.position = position
        self.problem = problem
        self.advice = advice

    @property
    def is_repairable(self) -> bool:
        """Whether the repair command can repair this damage."""
        return self.advice != RESTORE


class JournalVersionError(JournalError):
    """The files have a format that this version of Holdfast cannot read."""

    code = Code.FAILED_PRECONDITION


class JournalFailedError(JournalError):
    """A write or a sync failed: it is unknown what is durable until the journal is opened again."""

    code = Code.UNAVAILABLE


class LeadershipLostError(JournalFailedError):
    """Another process may write this journal: this one must drop its state, which may be ahead of the journal."""


class JournalForbiddenError(JournalError):
    """The operating system does not permit this process to write to the directory."""

    code = Code.FAILED_PRECONDITION


class JournalFullError(JournalError):
    """There is no space for a frame whose space was not reserved; nothing was written."""

    code = Code.RESOURCE_EXHAUSTED


class JournalClosedError(JournalError):
    """The journal has been closed."""

    code = Code.UNAVAILABLE


class PositionRemovedError(JournalError):
    """The requested positions have been deleted; a snapshot covers them."""

    code = Code.NOT_FOUND


class DirectoryLockedError(JournalError):
    """Another process has the directory open."""

    code = Code.UNAVAILABLE

    def __init__(self, directory: str, holder_pid: int | None) -> None:
        holder = f"process {holder_pid}" if holder_pid is not None else "another process"
        super().__init__(
            f"{directory} is in use by {holder}, which serves it: connect to it (--connect {directory}), stop it first,"
            " or use another directory",
            reason="DIRECTORY_LOCKED",
        )
        self.holder_pid = holder_pid


class SnapshotDamagedError(JournalError):
    """A snapshot file is damaged; recovery uses an older one, or the whole journal."""


class ReplayDivergedError(JournalError):
    """The journal is intact, but its replay leads to another state than the one at writing: a bug, not damage."""

    code = Code.INTERNAL

    def __init__(self, what: str, *, found: int, written: int) -> None:
        super().__init__(
            f"replaying {what} gives digest {found:016x}, but {written:016x} was written with it; nothing was changed."
            " This is a bug: keep the directory.",
            reason="REPLAY_DIVERGED",
        )


class UnreadableEventError(JournalError):
    """A stored event is intact, but this version of Holdfast does not know it."""

    code = Code.FAILED_PRECONDITION

    @classmethod
    def in_frame(cls, position: int, error: Exception) -> Self:
        """Return the error for the frame that begins at this position."""
        message = f"the frame at position {position} holds events that this version does not know ({error});"
        return cls(f"{message} start the version that wrote them", reason="EVENT_UNKNOWN")
