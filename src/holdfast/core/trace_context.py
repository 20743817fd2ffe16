"""The context of a trace as a job carries it: the W3C headers `traceparent` and `tracestate`.

Invariants:
- What is no `traceparent` is left out: it never refuses a job.
- What a job's own headers say stays, and a job whose headers are full carries no context.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from holdfast import limits
from holdfast.core.model import Extra

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]*)?")
#: The version that is known ends with the flags.
_VERSION = "00-"
_STATE = re.compile(r"[ -~]+")


class TraceContext(msgspec.Struct, frozen=True):
    """Where in which trace something was made; the state is empty for most."""

    traceparent: str
    tracestate: str = ""


def trace_context(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """The context that these say; None if they say none."""
    parent, state = traceparent.strip(), tracestate.strip()
    found = _FORM.fullmatch(parent)
    if found is None or len(parent) > limits.HEADER_VALUE_CHARS_MAX or (found["more"] and parent.startswith(_VERSION)):
        return None
    is_state = len(state) <= limits.HEADER_VALUE_CHARS_MAX and _STATE.fullmatch(state)
    return TraceContext(parent, state if is_state else "")


def sent_context(pairs: Iterable[tuple[str, object]]) -> TraceContext | None:
    """The context among the headers of a request, whose names are in lower case; two of them are none."""
    parents: list[str] = []
    states: list[str] = []
    for name, value in pairs:
        if name == TRACEPARENT:
            parents.append(str(value))
        elif name == TRACESTATE:
            states.append(str(value))
    return trace_context(parents[0], ",".join(states)) if len(parents) == 1 else None


def carried_context(headers: Mapping[str, str]) -> TraceContext | None:
    """The context that a job carries."""
    parent = headers.get(TRACEPARENT)
    return trace_context(parent, headers.get(TRACESTATE, "")) if parent else None


def carrying(extra: Extra | None, context: TraceContext) -> Extra | None:
    """What a job has besides its payload, with the context among its headers."""
    headers = dict(extra.headers) if extra is not None else {}
    if TRACEPARENT in headers:
        return extra
    headers.pop(TRACESTATE, None)
    headers[TRACEPARENT] = context.traceparent
    if context.tracestate:
        headers[TRACESTATE] = context.tracestate
    if len(headers) > limits.HEADERS_MAX:
        return extra
    pairs = tuple(sorted(headers.items()))
    return Extra(headers=pairs) if extra is None else msgspec.structs.replace(extra, headers=pairs)
