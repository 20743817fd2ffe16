"""Servers that would lose jobs are refused, each with one sentence."""

import re

import msgspec
import pytest

from holdfast.topologies.cluster.database.failures import too_old
from holdfast.topologies.cluster.database.server_checks import ServerFacts, problem_of

GOOD = ServerFacts(
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    synchronous_commit_source="the server",
    is_standby=False,
    may_migrate=True,
)


@pytest.mark.parametrize("setting", ["on", "remote_apply", "remote_write", "local"])
def test_durable_server_is_accepted(setting: str) -> None:
    """Settings that survive a crash of the server are accepted; sessions of the cluster choose a stronger one."""
    assert problem_of(msgspec.structs.replace(GOOD, synchronous_commit=setting)) is None


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"is_standby": True}, "DATABASE_READ_ONLY", "name the primary"),
        ({"fsync": "off"}, "DATABASE_NOT_DURABLE", "expected fsync=on, found off"),
        ({"full_page_writes": "off"}, "DATABASE_NOT_DURABLE", "expected full_page_writes=on"),
        (
            {"synchronous_commit": "off", "synchronous_commit_source": "the role"},
            "DATABASE_NOT_DURABLE",
            r"expected synchronous_commit=on, found off \(set by: the role\)",
        ),
        ({"may_migrate": False}, "DATABASE_RIGHTS_MISSING", "expected the owner of the schema"),
    ],
)
def test_unsafe_server_is_refused(change: dict[str, object], reason: str, words: str) -> None:
    """Each unsafe fact gives an error of its own, with what to do."""
    problem = problem_of(msgspec.structs.replace(GOOD, **change))
    assert problem is not None
    assert problem.reason == reason
    assert re.search(words, problem.message)


@pytest.mark.parametrize("version", [90_624, 110_022, 120_022])
def test_old_server_is_refused(version: int) -> None:
    """Each connection is refused by a server that is older than version 13."""
    problem = too_old(version)
    assert problem is not None
    assert problem.reason == "POSTGRES_TOO_OLD"
    assert f"found version {version // 10_000};" in problem.message
    assert too_old(130_000) is None
