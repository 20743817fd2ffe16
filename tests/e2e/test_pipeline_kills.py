"""Faults of the pipeline under load: roles killed, processes stopped, the database crashed, stopped or unreachable.

KILLS is the number of kills of each role.
"""

from pathlib import Path

import pytest

from holdfast_lab.history.records import Lost
from tests.e2e.campaign import besieged, kills_each, seed
from tests.postgres import require_postgres

SEED = seed(20_261_115)
KILLS = kills_each(1)
ROLES = ("scheduler", "normal", "high", "exchange", "coordinator", "watcher", "gateway", "worker")
#: Faults of the database, and stops of two roles that hold leases for longer than a lease.
FAULTS = ("engine-crash", "engine-stop", "engine-away", "stop scheduler", "stop worker")


@pytest.mark.slow
@pytest.mark.timeout(300 + 90 * KILLS)
def test_faults_of_every_kind_lose_and_double_nothing(short_path: Path) -> None:
    """While roles are killed and the database fails, jobs end once, ticks fire once, and no client hangs."""
    require_postgres()
    counts = {**dict.fromkeys((f"kill {role}" for role in ROLES), KILLS), **dict.fromkeys(FAULTS, max(1, KILLS // 2))}
    records = besieged("pipeline", short_path, counts, SEED)
    hinted = {one.op.partition("-")[0] for one in records if isinstance(one, Lost) and one.has_hint}
    assert hinted >= {"grpc", "http", "frozen"}, "clients of each interface are told when to try again"
