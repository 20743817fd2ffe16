"""What the journal refuses, and how it says so.

Every message names the file, what was found there and what to do next, because whoever reads it is looking
at a queue that does not start.
"""

from holdfast.errors import Code, HoldfastError

REPAIR_COMMAND = "holdfast journal repair DIR"
# What to do about damage, from the worst case to the best.
RESTORE = "restore the directory from a backup: `holdfast journal restore BACKUP DIR`"
CUT = f"`{REPAIR_COMMAND}` cuts this last frame and keeps a copy"
REBUILD = f"`{REPAIR_COMMAND}` rebuilds it from the segments"


class JournalError(HoldfastError):
    """Every error of the journal."""

    code = Code.INTERNAL


class JournalDamagedError(JournalError):
    """What is on disk is not what was written; nothing was changed."""

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
        """Say whether the repair command can do something about it."""
        return self.advice != RESTORE


class JournalVersionError(JournalError):
    """The files are of a format that this version of Holdfast does not read."""

    code = Code.FAILED_PRECONDITION


class JournalFailedError(JournalError):
    """A write or a sync failed: what is durable is unknown until the journal is opened anew."""

    code = Code.UNAVAILABLE


class JournalForbiddenError(JournalError):
    """The operating system does not let this process write to the directory."""

    code = Code.FAILED_PRECONDITION


class JournalFullError(JournalError):
    """There was no room for a frame that nobody had reserved room for; nothing was written."""

    code = Code.RESOURCE_EXHAUSTED


class JournalClosedError(JournalError):
    """The journal has been closed."""

    code = Code.UNAVAILABLE


class PositionRemovedError(JournalError):
    """The positions asked for have been deleted; a snapshot covers them."""

    code = Code.NOT_FOUND


class DirectoryLockedError(JournalError):
    """Another process has the directory open."""

    code = Code.UNAVAILABLE

    def __init__(self, directory: str, holder_pid: int | None) -> None:
        holder = f"process {holder_pid}" if holder_pid is not None else "another process"
        super().__init__(
            f"{directory} is in use by {holder}, which serves it: ask that one (--connect {directory}), stop it first,"
            " or use another directory",
            reason="DIRECTORY_LOCKED",
        )
        self.holder_pid = holder_pid


class SnapshotDamagedError(JournalError):
    """A snapshot file does not hold what was written; an older one, or the whole journal, still does."""


class ReplayDivergedError(JournalError):
    """The journal is intact, but replaying it does not give the state it was written from: a bug, not damage."""

    code = Code.INTERNAL


class UnreadableEventError(JournalError):
    """What is stored is intact, but this version of Holdfast does not know it."""

    code = Code.FAILED_PRECONDITION
