"""What the digest of format version 2 costs: applying the same events under either version, in one run.

    python -m holdfast.lab.faults.digest_cost [--json]

The least of many interleaved rounds counts, so that the ratio means something on a busy machine.
"""

import argparse
import gc
import json
import os
import time

from holdfast.core import commands
from holdfast.core.commands import Decision, ReportRow
from holdfast.core.events import AnyEvent
from holdfast.core.ledger import Ledger, LedgerConfig
from holdfast.core.lifecycle import DONE
from holdfast.core.model import NewJob, Now, Template
from holdfast.core.owner import mint
from holdfast.core.state import Book

_JOBS, _ROUNDS = 500, 200
_START_MS = 1_700_000_000_000
_CASES = {"one job an event": (1, 1), "500 jobs a submission, 64 a grant": (500, 64)}


def _events(batch: int, grant: int) -> list[AnyEvent]:
    """Jobs are submitted, granted and finished."""
    ledger, found, now_ms = Ledger(LedgerConfig()), list[AnyEvent](), _START_MS

    def do(command: commands.AnyCommand) -> object:
        nonlocal now_ms
        now_ms += 1
        decision = ledger.decide(command, Now(now_ms, now_ms))
        assert isinstance(decision, Decision)
        if decision.event is not None:
            ledger.apply(decision.event)
            found.append(decision.event)
        return decision.reply

    for _ in range(_JOBS // batch):
        do(commands.Submit([Template("bench")], [NewJob(job_id, 0, b"x" * 100) for job_id in mint(os.urandom, batch)]))
    lease = commands.GrantLeases("worker", frozenset({"bench"}), frozenset(), grant, 30_000)
    while granted := do(lease):
        assert isinstance(granted, list)
        do(commands.Report("worker", [ReportRow(one.job_id, one.token, DONE, b"null") for one in granted]))
    return found


def _seconds(events: list[AnyEvent], version: int) -> float:
    ledger = Ledger(LedgerConfig(), Book(digest_version=version))
    start = time.thread_time()
    for event in events:
        ledger.apply(event)
    return time.thread_time() - start


def measured() -> list[dict[str, object]]:
    """For each case the microseconds of a transition under versions 1 and 2, and their ratio."""
    rows: list[dict[str, object]] = []
    for name, (batch, grant) in _CASES.items():
        events = _events(batch, grant)
        rounds = [(_seconds(events, 1), _seconds(events, 2)) for _ in range(_ROUNDS)]
        per = {version: min(spent) / (3 * _JOBS) * 1e6 for version, spent in enumerate(zip(*rounds, strict=True), 1)}
        rows.append({"case": name, "v1_us": round(per[1], 2), "v2_us": round(per[2], 2), "ratio": per[2] / per[1]})
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    as_json = parser.parse_args().json
    gc.disable()
    rows = measured()
    if as_json:
        print(json.dumps(rows))
        return
    print(f"{'applying':36} {'version 1':>10} {'version 2':>10} {'ratio':>6}")
    for row in rows:
        print(f"{row['case']:36} {row['v1_us']:>7} us {row['v2_us']:>7} us {row['ratio']:>6.2f}")


if __name__ == "__main__":
    main()
