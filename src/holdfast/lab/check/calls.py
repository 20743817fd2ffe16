"""Calls of clients, and what they may conclude.

- A call without an answer, or with `Lost`, is unknown for ever: it may have been done, now or later.
- One call is one try: whoever tries again writes a new one.
"""

from dataclasses import dataclass
from math import inf

from holdfast.lab.history.records import Answered, Asked, Lost, Refused, Seen, Wanted

SUBMIT, RETRY, CANCEL, LIST = "submit", "retry", "cancel", "list"
NOT_FOUND, FAILED_PRECONDITION = "NOT_FOUND", "FAILED_PRECONDITION"
#: How the parts of a submit that is refused only in part are told that their key is taken.
_KEY_TAKEN = frozenset({FAILED_PRECONDITION, "REQUEST_ID_REUSED"})


@dataclass(slots=True)
class Call:
    """A call, and its answer if one came."""

    asked: Asked
    answer: Answered | Refused | Lost | None = None

    @property
    def answered(self) -> Answered | None:
        """The answer, if it was done."""
        return self.answer if isinstance(self.answer, Answered) else None

    @property
    def is_refused(self) -> bool:
        return isinstance(self.answer, Refused)

    @property
    def is_unknown(self) -> bool:
        return self.answer is None or isinstance(self.answer, Lost)

    @property
    def asked_us(self) -> int:
        return self.asked.at_us

    @property
    def heard_us(self) -> float:
        """When its outcome was heard; never, if none was."""
        return inf if self.answer is None else self.answer.at_us

    def is_refused_as(self, code: str) -> bool:
        return isinstance(self.answer, Refused) and self.answer.code.upper() == code


@dataclass(frozen=True, slots=True)
class Ask:
    """One job of a submit, and what came of it."""

    call: Call
    index: int
    wanted: Wanted

    @property
    def id(self) -> str:
        """The id that was told; empty if none was."""
        answered = self.call.answered
        if answered is None or self.index in answered.refusals or self.index >= len(answered.ids):
            return ""
        return answered.ids[self.index]

    @property
    def is_refused(self) -> bool:
        """It was not done, and never will be."""
        answered = self.call.answered
        return self.call.is_refused or (answered is not None and self.index in answered.refusals)

    @property
    def is_refused_for_its_key(self) -> bool:
        """It was refused because its key is that of something else, and not for want of room, say."""
        answer = self.call.answer
        if isinstance(answer, Refused):
            return answer.code.upper() == FAILED_PRECONDITION
        return isinstance(answer, Answered) and answer.refusals.get(self.index, "").upper() in _KEY_TAKEN

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two asks the same job, whoever sends them and however often; empty if nothing does."""
        return (self.wanted.id, self.wanted.key)


@dataclass(frozen=True, slots=True)
class Reading:
    """A job as one answer showed it."""

    call: Call
    seen: Seen

    @property
    def heard_us(self) -> float:
        return self.call.heard_us
