"""Writes docs/topologies/capabilities.md from the declarations in the code."""

from holdfast.core.capabilities import DECLARED, MEANINGS, Capability

_BEFORE = """\
# What each topology can do

Generated from `holdfast.core.capabilities` by `make docs`; edit the declarations there. Every topology keeps and runs
jobs by [the same promises](../guarantees.md); this is where they differ. `holdfast stats`, `app.capabilities()`,
`GET /api/v1/capabilities` and `AdminService.GetCapabilities` of `holdfast.v1` list what the topology that is asked has.
A call that needs what is missing is refused with UNIMPLEMENTED (HTTP 501, exit code 4) and `CAPABILITY_MISSING`.
"""
_AFTER = """
- `ledger` is a directory, `holdfast server` and `holdfast up`; a node of the monolith that is asked alone is one too.
- **notes**: where they are missing, `progress()` and `log()` do nothing, and the worker of an app logs
  `capability_missing` once when it starts.
- **schedules**: where they are missing, the worker of an app with `@app.schedule` does not start.
- **totals** are counted by the HTTP server of `holdfast server` and `holdfast up`; a directory without one has none.
- **order** holds within a node of the monolith, and within one queue process of the pipeline; over ZooKeeper it holds
  among jobs of one queue and type.
"""


def to_markdown() -> str:
    """The whole page."""
    header = f"| capability | meaning | {' | '.join(one.backend for one in DECLARED)} |"
    rows = [header, f"|---|---|{':-:|' * len(DECLARED)}", *map(_row, Capability)]
    return "\n".join([_BEFORE, *rows, _AFTER])


def _row(capability: Capability) -> str:
    there = " | ".join("yes" if one.has(capability) else "no" for one in DECLARED)
    return f"| `{capability.value}` | {MEANINGS[capability]} | {there} |"
