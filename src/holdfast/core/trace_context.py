"""The trace context that a job carries: the W3C headers `traceparent` and `tracestate`.

Invariants:
- An invalid `traceparent` is ignored; it never causes a refusal.
- A job's own trace headers are kept, and a job with the maximum number of headers gets no context.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from holdfast import limits
from holdfast.core.model import Extra

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]*)?")
#: The known version of the format, which ends with the flags.
_VERSION = "00-"
_STATE = re.compile(r"[ -~]+")


class TraceContext(msgspec.Struct, frozen=True):
    """The position in a trace; `tracestate` is mostly empty."""

    traceparent: str
    tracestate: str = ""


def trace_context(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Parses a context; None if `traceparent` is invalid."""
    parent, state = traceparent.strip(), tracestate.strip()
    found = _FORM.fullmatch(parent)
    if found is None or len(parent) > limits.HEADER_VALUE_CHARS_MAX or (found["more"] and parent.startswith(_VERSION)):
        return None
    is_state = len(state) <= limits.HEADER_VALUE_CHARS_MAX and _STATE.fullmatch(state)
    return TraceContext(parent, state if is_state else "")


def sent_context(pairs: Iterable[tuple[str, object]]) -> TraceContext | None:
    """The context in a request's headers (names in lower case); None if there are two `traceparent`."""
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
    """The job's extra fields with the context added to the headers."""
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
