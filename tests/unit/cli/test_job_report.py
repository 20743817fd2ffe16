"""The arguments in the output of `holdfast job get`."""

import json
import tracemalloc

from holdfast.cli.job_report import arguments_text


def test_deeply_nested_arguments_are_indented_only_as_far_as_they_are_shown() -> None:
    """Arguments of a few kilobytes and 900 levels do not need megabytes of memory for their indentation."""
    depth = 900
    payload = b"[" * depth + b",".join([b"0"] * 3_000) + b"]" * depth
    tracemalloc.start()
    try:
        shown = arguments_text(payload)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert shown.startswith("[\n  [\n    [\n")
    assert shown.endswith(f"\n... ({len(payload)} bytes in all; --json prints everything)")
    assert peak_bytes < 1 << 20


def test_arguments_that_are_shown_whole_are_indented() -> None:
    """A block that is not cut equals the output of `json.dumps`."""
    value = {"words": ["ä"] * 100}
    assert arguments_text(json.dumps(value).encode()) == json.dumps(value, ensure_ascii=False, indent=2)
