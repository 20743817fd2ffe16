"""Calls of clients, and the conclusions that they allow.

- A call without a response, or with `Lost`, is unknown for ever: it may take effect at any later time.
- One call is one try: a client that repeats a call records a new one.
"""

from dataclasses import dataclass
from math import inf

from holdfast_lab.history.records import Answered, Asked, JobSnapshot, JobSpec, Lost, Refused

SUBMIT, RETRY, CANCEL, LIST, GET, RESULT = "submit", "retry", "cancel", "list", "get", "result"
NOT_FOUND, FAILED_PRECONDITION = "NOT_FOUND", "FAILED_PRECONDITION"
#: Codes and reasons of a partly refused submit for a job whose key is in use.
_KEY_TAKEN = frozenset({FAILED_PRECONDITION, "REQUEST_ID_REUSED"})


@dataclass(slots=True)
class Call:
    """A call, and its response if there is one."""

    asked: Asked
    answer: Answered | Refused | Lost | None = None

    @property
    def answered(self) -> Answered | None:
        """The response, if the call succeeded."""
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
        """When the client received the outcome; infinity if it never did."""
        return inf if self.answer is None else self.answer.at_us

    def is_refused_as(self, code: str) -> bool:
        return isinstance(self.answer, Refused) and self.answer.code.upper() == code


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """One job of a submit, and its outcome."""

    call: Call
    index: int
    wanted: JobSpec

    @property
    def id(self) -> str:
        """The id in the response; empty if there is none."""
        answered = self.call.answered
        if answered is None or self.index in answered.refusals or self.index >= len(answered.ids):
            return ""
        return answered.ids[self.index]

    @property
    def is_refused(self) -> bool:
        """Whether it was refused: it had no effect, and never will."""
        answered = self.call.answered
        return self.call.is_refused or (answered is not None and self.index in answered.refusals)

    @property
    def is_refused_for_its_key(self) -> bool:
        """Whether it was refused because its key belongs to other content, and not for another reason."""
        answer = self.call.answer
        if isinstance(answer, Refused):
            return answer.code.upper() == FAILED_PRECONDITION
        return isinstance(answer, Answered) and answer.refusals.get(self.index, "").upper() in _KEY_TAKEN

    @property
    def identity(self) -> tuple[str, str]:
        """The id and key that make two submits the same job, regardless of the sender; empty if there is neither."""
        return (self.wanted.id, self.wanted.key)


@dataclass(frozen=True, slots=True)
class JobReading:
    """A job as one response showed it."""

    call: Call
    seen: JobSnapshot

    @property
    def heard_us(self) -> float:
        return self.call.heard_us
