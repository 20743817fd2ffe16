"""The processes of the pipeline on one machine: ports, environment and required packages."""

import importlib.util

import pytest

from holdfast.errors import FailedPreconditionError
from holdfast.server.auth.service_tokens import make_tokens
from holdfast.settings import Settings
from holdfast.topologies.pipeline.layout import RoleCommands, layout_of
from holdfast.topologies.pipeline.requirements import need_packages
from holdfast.topologies.pipeline.roles.callers import CALLERS, OPERATOR

PASSWORD_URL = "postgresql://me:secret@db/jobs"
MADE = make_tokens(CALLERS)


def test_usual_ports_are_those_of_the_picture() -> None:
    """By default every role listens on its documented port."""
    layout = layout_of(Settings(topology="pipeline"))
    assert (layout.grpc, layout.http, layout.also) == (50_051, 8_080, 8_000)
    assert layout.ports("scheduler") == "8081,8082,8083"
    assert layout.ports("watcher") == "9001,9002,9003"
    assert layout.ports("exchange") == "2001,2002"
    assert (layout.ports("normal"), layout.ports("high")) == ("7001,7002", "7101,7102")
    assert (layout.ports("coordinator"), layout.ports("worker")) == ("3000", "10001,10002,10003")


def test_port_0_gives_every_role_a_free_port() -> None:
    """With port 0 every role gets a free port, and no two roles share one."""
    layout = layout_of(Settings(topology="pipeline", port=0, http_port=0))
    ports = [layout.grpc, layout.http, layout.also, *(port for ports in layout.roles.values() for port in ports)]
    assert len(set(ports)) == len(ports) == 19
    assert 0 not in ports


def test_password_stands_on_no_command_line() -> None:
    """Passwords and tokens are passed in the environment, not on command lines, which other users can read."""
    settings = Settings(topology="pipeline", database=PASSWORD_URL)
    roles = [
        role for stage in RoleCommands(settings, layout_of(settings), PASSWORD_URL, MADE).stages() for role in stage
    ]
    assert len(roles) == 17
    assert not any("secret" in word for role in roles for word in role.command)
    assert not any(token in word for role in roles for word in role.command for token in MADE.tokens.values())
    assert {role.environment["HOLDFAST_DATABASE"] for role in roles} == {PASSWORD_URL}


def test_each_caller_is_told_its_own_token_alone() -> None:
    """Each role gets only its own token, roles that call no other get none, and all get the hashes."""
    settings = Settings(topology="pipeline")
    roles = [role for stage in RoleCommands(settings, layout_of(settings), "", MADE).stages() for role in stage]
    told = {role.name.partition("-")[0]: role.environment["SERVICE_TOKEN"] for role in roles}
    expected = {name: MADE.tokens[name] for name in CALLERS if name != OPERATOR}
    assert told == {**dict.fromkeys(("scheduler", "normal", "high", "coordinator"), ""), **expected}
    assert {role.environment["SERVICE_TOKEN_HASHES"] for role in roles} == {MADE.hashes}


def test_workers_are_started_last_and_end_first() -> None:
    """Workers start last and stop first, because they need the other roles to finish their jobs."""
    settings = Settings(topology="pipeline")
    stages = RoleCommands(settings, layout_of(settings), "", MADE).stages()
    assert {role.name.partition("-")[0] for role in stages[-1]} == {"worker"}
    assert {role.name.partition("-")[0] for role in stages[0]} == {"scheduler"}


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is reported with the command that installs it."""
    need_packages()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "psycopg" else name)
    with pytest.raises(FailedPreconditionError, match=r"needs psycopg: pip install 'holdfast\[pipeline\]'"):
        need_packages()


def test_watchers_are_told_how_long_jobs_are_kept() -> None:
    """Watchers get the retention times of finished and of FAILED jobs."""
    settings = Settings(topology="pipeline", retain_ms=1_000, retain_failed_ms=2_000)
    roles = [role for stage in RoleCommands(settings, layout_of(settings), "", MADE).stages() for role in stage]
    (told,) = {
        (role.environment["HOLDFAST_RETAIN_MS"], role.environment["HOLDFAST_RETAIN_FAILED_MS"])
        for role in roles
        if role.name.startswith("watcher")
    }
    assert told == ("1000", "2000")
