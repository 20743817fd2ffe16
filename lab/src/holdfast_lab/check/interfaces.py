"""The rule about interfaces: gRPC and HTTP show the same about a job that has ended."""

from collections.abc import Iterator

from holdfast_lab.check.history import History
from holdfast_lab.check.story import state_name
from holdfast_lab.check.verdict import Rule, SuspectedViolation, Tally
from holdfast_lab.history.records import TERMINAL, JobSnapshot

_BOTH = ("grpc", "http")


def interfaces(history: History, tally: Tally) -> Iterator[SuspectedViolation]:
    """Finds ended jobs for which gRPC and HTTP showed different data."""
    offered = history.run.interfaces or _BOTH
    missing = [name for name in _BOTH if name not in offered]
    if missing:
        tally.not_offered = f"the topology does not offer {missing[0]}"
        return
    for job_id, readings in history.readings.items():
        seen: dict[str, list[JobSnapshot]] = {via: [] for via in _BOTH}
        for one in readings:
            if one.seen.state in TERMINAL and one.call.asked.via in seen:
                seen[one.call.asked.via].append(one.seen)
        if all(seen.values()):
            tally.cases += 1
            difference = _difference(seen["grpc"], seen["http"])
            if difference:
                yield SuspectedViolation(job_id, difference)


def _difference(grpc: list[JobSnapshot], http: list[JobSnapshot]) -> str:
    """Returns the first attribute that differs; attributes that only one interface shows are not compared."""
    for name in ("state", "run", "attempts", "name", "reason"):
        ours = {value for one in grpc if (value := getattr(one, name))}
        theirs = {value for one in http if (value := getattr(one, name))}
        if ours and theirs and ours != theirs:
            return f"has the {name} {_shown(name, ours)} over gRPC and {_shown(name, theirs)} over HTTP"
    return ""


def _shown(name: str, values: set[object]) -> str:
    shown = sorted(state_name(one) if name == "state" and isinstance(one, int) else str(one) for one in values)
    return " and ".join(shown)


RULES = (Rule("interfaces", "gRPC and HTTP show the same", "no ended job was read both ways", interfaces),)
