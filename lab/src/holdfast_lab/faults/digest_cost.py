"""Cost of the digest of format version 2: the same events applied under either version, in one run.

    python -m holdfast_lab.faults.digest_cost [--json]

The shortest of many interleaved rounds counts, so that other load of the machine does not.
"""

import gc
import time

from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.state import LedgerState
from holdfast_lab.measure.command import parser, show
from holdfast_lab.measure.ledger_writer import LedgerWriter
from holdfast_lab.measure.tables import columns

_JOBS, _ROUNDS = 500, 200
_START_MS = 1_700_000_000_000
_CASES = {"one job an event": (1, 1), "500 jobs a submission, 64 a grant": (500, 64)}


def _events(batch: int, grant: int) -> list[AnyEvent]:
    """Returns the events of jobs that are submitted, granted and finished."""
    found = list[AnyEvent]()
    writer = LedgerWriter(_START_MS, found.append)
    for _ in range(_JOBS // batch):
        writer.submit(batch, b"x" * 100)
    while writer.finish(grant):
        pass
    return found


def _seconds(events: list[AnyEvent], version: int) -> float:
    ledger = Ledger(LedgerConfig(), LedgerState(digest_version=version))
    start = time.thread_time()
    for event in events:
        ledger.apply(event)
    return time.thread_time() - start


def measured() -> list[dict[str, object]]:
    """Returns for each case the microseconds of a transition under versions 1 and 2, and their ratio."""
    rows: list[dict[str, object]] = []
    for name, (batch, grant) in _CASES.items():
        events = _events(batch, grant)
        rounds = [(_seconds(events, 1), _seconds(events, 2)) for _ in range(_ROUNDS)]
        per = {version: min(spent) / (3 * _JOBS) * 1e6 for version, spent in enumerate(zip(*rounds, strict=True), 1)}
        rows.append({"case": name, "v1_us": round(per[1], 2), "v2_us": round(per[2], 2), "ratio": per[2] / per[1]})
    return rows


def main() -> None:
    """Print the figures."""
    given = parser(__doc__).parse_args()
    gc.disable()
    rows = measured()
    cells = [(row["case"], f"{row['v1_us']} us", f"{row['v2_us']} us", f"{row['ratio']:.2f}") for row in rows]
    show(rows, columns(("applying", "version 1", "version 2", "ratio"), cells), as_json=given.json)


if __name__ == "__main__":
    main()
