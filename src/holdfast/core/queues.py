"""QueueManager: sets the modes of queues.

A queue exists by name alone and is open unless an event says otherwise. A paused queue grants no jobs, and a draining
queue accepts no new ones. Neither affects running jobs, nor jobs that return after a run.
"""

from holdfast import limits
from holdfast.core.commands import Decision, Refusal, SetQueueMode
from holdfast.core.events import QueueModeSet
from holdfast.core.model import Closure, Now, QueueMode
from holdfast.core.state import LedgerState
from holdfast.core.validation import check_queue, check_reason, invalid
from holdfast.errors import Code

_MODES = frozenset(QueueMode)


class QueueManager:
    """The part of the ledger that owns the modes of queues."""

    __slots__ = ("_state",)

    def __init__(self, state: LedgerState) -> None:
        self._state = state

    def set_mode(self, command: SetQueueMode, now: Now) -> Decision | Refusal:
        """One event if the mode or its reason changes, otherwise none."""
        refusal = _check(command) or self._no_room(command)
        if refusal:
            return refusal
        before = self._state.modes.get(command.queue)
        if before is None:
            is_change = command.mode != QueueMode.OPEN
        else:
            is_change = (before.mode, before.reason) != (command.mode, command.reason)
        event = QueueModeSet(now.log_ms, command.queue, QueueMode(command.mode), command.reason)
        return Decision(event if is_change else None)

    def _no_room(self, command: SetQueueMode) -> Refusal | None:
        modes = self._state.modes
        is_more = command.mode != QueueMode.OPEN and command.queue not in modes
        if not is_more or len(modes) < limits.QUEUES_CLOSED_MAX:
            return None
        message = f"the limit of {limits.QUEUES_CLOSED_MAX} paused or draining queues is reached; reopen some of them"
        return Refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_CLOSED_QUEUES", message)

    def apply_mode(self, event: QueueModeSet) -> None:
        """Opens, pauses or drains a queue."""
        self._state.set_mode(event.queue, Closure(event.mode, event.reason, event.at_ms))


def _check(command: SetQueueMode) -> Refusal | None:
    if command.mode not in _MODES:
        return invalid(
            "QUEUE_MODE_INVALID", f"the mode must be 1 (open), 2 (paused) or 3 (draining), got {command.mode!r}"
        )
    return check_queue(command.queue) or check_reason(command.reason)
