"""Rules about the run: it proves nothing unless everything that it had to test has happened.

They never report a violation. A call that never succeeded, or a fault that was not fired, is a doubt.
"""

from collections import Counter
from collections.abc import Iterator

from holdfast_lab.check.calls import SUBMIT, Call
from holdfast_lab.check.history import History
from holdfast_lab.check.verdict import Rule, SuspectedViolation, Tally


def calls(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Checks that every kind of call succeeded at least once."""
    done = Counter(call.asked.call for call in history.calls.values() if _has_succeeded(call))
    tally.cases = sum(done.values())
    missing = [name for name in history.run.calls if not done[name]]
    if not history.run.calls:
        tally.doubt = "the run does not name the calls that it had to make"
    elif missing:
        tally.doubt = f"never succeeded: {', '.join(missing)}"
    elif history.gaps:
        tally.doubt = f"the records are incomplete in {len(history.gaps)} places: {history.gaps[0]}"
    return iter(())


def _has_succeeded(call: Call) -> bool:
    answered = call.answered
    return answered is not None and (call.asked.call != SUBMIT or any(answered.ids))


def faults(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Checks that every enabled fault was fired."""
    fired = Counter(one.kind for one in history.faults.fired)
    tally.cases = sum(fired.values())
    missing = [name for name in history.run.faults if not fired[name]]
    if missing:
        tally.doubt = f"never fired: {', '.join(missing)}"
    elif not history.run.faults:
        tally.not_offered = "the run had no faults"
    return iter(())


RULES = (
    Rule("calls", "every kind of call succeeded", "no call succeeded", calls),
    Rule("faults", "every fault was fired", "no fault was fired", faults),
)
