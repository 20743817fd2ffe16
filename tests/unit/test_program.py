"""The program `holdfast`: what its help and its errors tell a person."""

import re
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.cli import main
from holdfast.errors import ExitCode
from holdfast.settings import FIELDS, purpose


def holdfast(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    return main()


def test_help_says_what_every_setting_is_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting is an option of `up` with its purpose, and large defaults are also given in a larger unit."""
    monkeypatch.setenv("COLUMNS", "200")
    assert holdfast(monkeypatch, "up", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in FIELDS:
        assert f"--{name.replace('_', '-')} " in text
        assert purpose(name) in text
    assert "(default: 30000 = 30 s)" in text
    assert "(default: 1073741824 = 1024 MiB)" in text
    assert "(default: )" not in text


def test_server_has_no_options_of_a_worker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What only a worker would heed is not offered by a server without one."""
    assert holdfast(monkeypatch, "server", "--help") == 0
    text = capsys.readouterr().out
    assert "--lease-ms" in text
    assert "--slots" not in text
    assert "--worker-id" not in text


def test_version_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` needs no command."""
    assert holdfast(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"holdfast {__version__}\n"


def test_every_command_of_the_help_is_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a help of its own, although only the one that is asked for is made; what is no command is told so."""
    assert holdfast(monkeypatch, "--help") == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    names = [line.split()[0] for line in listed if re.match(r"  \w", line)]
    assert len(names) > 15
    for name in names:
        assert holdfast(monkeypatch, name, "--help") == 0
        assert capsys.readouterr().out.startswith(f"Usage: holdfast {name} ")
    assert holdfast(monkeypatch, "nonsense") == ExitCode.USAGE
    assert "No such command 'nonsense'" in capsys.readouterr().err


def test_every_problem_with_the_settings_is_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line names the program, so that none looks like somebody else's."""
    assert holdfast(monkeypatch, "server", "--port", "x", "--lease-ms", "1") == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" to be ")[0] for line in lines] == ["holdfast: expected port", "holdfast: expected lease_ms"]


@pytest.mark.parametrize("address", ["http://localhost:1", "localhost:", ":50051", "localhost:0", "localhost:x"])
def test_worker_refuses_what_is_no_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    """It would wait for ever for a server that cannot be there."""
    assert holdfast(monkeypatch, "worker", "--connect", address) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("holdfast: expected --connect to be host:port,")
    assert f"got {address!r}" in said


@pytest.mark.parametrize("command", [("worker",), ("job", "list")], ids=["worker", "job"])
def test_misspelt_variable_is_refused_by_others_than_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """As the server does: a setting that nobody reads is a mistake."""
    monkeypatch.setenv("HOLDFAST_CONECT", "localhost:1")
    assert holdfast(monkeypatch, *command) == ExitCode.USAGE
    assert "did you mean HOLDFAST_CONNECT?" in capsys.readouterr().err


def test_repair_leaves_a_directory_without_a_journal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A wrong path is an error and no success, and nothing is written there."""
    assert holdfast(monkeypatch, "journal", "repair", str(tmp_path)) == ExitCode.REFUSED
    assert "there is no journal in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
