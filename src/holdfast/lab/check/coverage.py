"""Rules about the run: it proves nothing unless what it was to try has happened.

These never find anything broken; a call that never succeeded, or a fault that was not fired, is a doubt.
"""

from collections import Counter
from collections.abc import Iterator

from holdfast.lab.check.calls import SUBMIT, Call
from holdfast.lab.check.history import History
from holdfast.lab.check.ruling import Rule, Suspect, Tally


def calls(history: History, tally: Tally) -> Iterator[Suspect]:
    """Every kind of call succeeded at least once."""
    done = Counter(call.asked.call for call in history.calls.values() if _has_succeeded(call))
    tally.cases = sum(done.values())
    missing = [name for name in history.run.calls if not done[name]]
    if not history.run.calls:
        tally.doubt = "the run does not say which calls it was to make"
    elif missing:
        tally.doubt = f"never succeeded: {', '.join(missing)}"
    elif history.gaps:
        tally.doubt = f"the records are not whole in {len(history.gaps)} places: {history.gaps[0]}"
    return iter(())


def _has_succeeded(call: Call) -> bool:
    answered = call.answered
    return answered is not None and (call.asked.call != SUBMIT or any(answered.ids))


def faults(history: History, tally: Tally) -> Iterator[Suspect]:
    """Every fault that was enabled was fired."""
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
