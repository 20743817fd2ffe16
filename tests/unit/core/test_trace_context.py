"""The trace context in the headers of a job."""

import pytest

from holdfast import limits
from holdfast.core.model import Extra
from holdfast.core.trace_context import TraceContext, carried_context, carrying, sent_context, trace_context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"


@pytest.mark.parametrize("text", [PARENT, f" {PARENT} ", OTHER, f"cc{PARENT[2:]}", f"01{PARENT[2:]}-what-comes-later"])
def test_traceparent_is_understood(text: str) -> None:
    """A `traceparent` of this version, or of a later one with more fields, is accepted."""
    assert trace_context(text) == TraceContext(text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-1",
        PARENT.upper(),
        f"{PARENT}-more",
        f"ff{PARENT[2:]}",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        PARENT[:-1],
        PARENT.replace("-", "_"),
        f"01{PARENT[2:]}-\x00",
        f"01{PARENT[2:]}-{'x' * limits.HEADER_VALUE_CHARS_MAX}",
    ],
)
def test_bad_traceparent_is_no_context(text: str) -> None:
    """An invalid `traceparent` is ignored without an error."""
    assert trace_context(text, "vendor=1") is None
    assert carried_context({"traceparent": text}) is None


def test_bad_state_is_left_out() -> None:
    """An invalid `tracestate` is dropped, and the rest of the context is kept."""
    assert trace_context(PARENT, "a=1,b=2") == TraceContext(PARENT, "a=1,b=2")
    for state in ("a=\nb=2", "é", "x" * (limits.HEADER_VALUE_CHARS_MAX + 1)):
        assert trace_context(PARENT, state) == TraceContext(PARENT)


def test_context_is_found_among_the_headers_of_a_request() -> None:
    """States are joined in their order, and a request with two parents has no context."""
    pairs = [("host", "x"), ("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]
    assert sent_context(pairs) == TraceContext(PARENT, "a=1,b=2")
    assert sent_context([*pairs, ("traceparent", OTHER)]) is None
    assert sent_context([("tracestate", "a=1")]) is None
    assert sent_context([("traceparent", PARENT.encode())]) is None


def test_job_carries_the_context_beside_its_own_headers() -> None:
    """A job gets the context beside its own headers, which stay sorted by name."""
    context = TraceContext(PARENT, "a=1")
    assert carrying(None, context) == Extra(headers=(("traceparent", PARENT), ("tracestate", "a=1")))
    made = carrying(Extra(request_id="r", headers=(("z", "1"), ("tracestate", "old=1"))), TraceContext(PARENT))
    assert made == Extra(request_id="r", headers=(("traceparent", PARENT), ("z", "1")))
    assert made is not None
    assert carried_context(dict(made.headers)) == TraceContext(PARENT)


def test_traceparent_of_the_caller_stays() -> None:
    """A `traceparent` that the caller has set stays, valid or not."""
    for own in (OTHER, "nonsense"):
        extra = Extra(headers=(("traceparent", own),))
        assert carrying(extra, TraceContext(PARENT)) is extra


def test_job_whose_headers_are_full_carries_none() -> None:
    """A job whose headers are full gets no trace context."""
    full = Extra(headers=tuple((f"h{number:02}", "") for number in range(limits.HEADERS_MAX)))
    assert carrying(full, TraceContext(PARENT)) is full
    almost = Extra(headers=full.headers[1:])
    made = carrying(almost, TraceContext(PARENT))
    assert made is not None
    assert len(made.headers) == limits.HEADERS_MAX
