"""Headers of a trace: a valid context or none; no header of a request causes a refusal of its job."""

import re

from holdfast import limits
from holdfast.core.model import Extra
from holdfast.core.trace_context import carried_context, carrying, sent_context, trace_context

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_ZEROS = re.compile(r"[0-9a-f]{2}-(0{32}|[0-9a-f]{32}-0{16})-")


def seeds() -> list[bytes]:
    """Contexts of this version and of a later one, with and without a state; and invalid ones."""
    good = (_PARENT, f"{_PARENT}\nvendor=value,other=1", f"{_PARENT.replace('00-', '01-', 1)}-more", f" {_PARENT} ")
    none = (f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", _PARENT.replace("00-", "ff-", 1))
    return [text.encode() for text in (*good, *none)]


def fuzz(data: bytes) -> None:
    """Reads a pair of headers, and adds their context to a job."""
    parent, _, state = data.decode("utf-8", "surrogateescape").partition("\n")
    context = trace_context(parent, state)
    assert context == sent_context([("traceparent", parent), ("tracestate", state)])
    assert sent_context([("traceparent", parent), ("traceparent", parent)]) is None
    if context is None:
        return
    assert context.traceparent.isascii()
    assert context.tracestate.isascii()
    assert len(context.traceparent) <= limits.HEADER_VALUE_CHARS_MAX
    assert not _ZEROS.match(context.traceparent)
    assert not context.traceparent.startswith("ff")
    assert trace_context(context.traceparent, context.tracestate) == context
    extra = carrying(None, context)
    assert isinstance(extra, Extra)
    assert carried_context(dict(extra.headers)) == context
    assert carrying(extra, context) == extra
