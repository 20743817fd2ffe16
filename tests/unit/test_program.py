"""The program `holdfast`: its help and its error messages."""

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


def test_help_describes_every_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting is an option of `up` with its description, and large defaults are also given in a larger unit."""
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
    """A server does not offer options that only a worker uses."""
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
    """Each listed command has a help of its own, and an unknown command is refused."""
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
    """Each problem with the settings is a line that starts with the program's name."""
    assert holdfast(monkeypatch, "server", "--port", "x", "--lease-ms", "1") == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" must be ")[0] for line in lines] == ["holdfast: --port", "holdfast: --lease-ms"]


@pytest.mark.parametrize("address", ["http://localhost:1", "localhost:", ":50051", "localhost:0", "localhost:x"])
def test_worker_refuses_an_invalid_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    """The worker refuses an invalid address, because it would retry the connection for ever."""
    assert holdfast(monkeypatch, "worker", "--connect", address) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith("holdfast: --connect must be host:port,")
    assert f"got {address!r}" in said


@pytest.mark.parametrize("command", [("worker",), ("job", "list")], ids=["worker", "job"])
def test_misspelt_variable_is_refused_by_others_than_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """A misspelt HOLDFAST_ variable is refused by every command, as by the server."""
    monkeypatch.setenv("HOLDFAST_CONECT", "localhost:1")
    assert holdfast(monkeypatch, *command) == ExitCode.USAGE
    assert "did you mean HOLDFAST_CONNECT?" in capsys.readouterr().err


def test_repair_leaves_a_directory_without_a_journal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A repair of a directory without a journal is an error, and writes nothing."""
    assert holdfast(monkeypatch, "journal", "repair", str(tmp_path)) == ExitCode.REFUSED
    assert "contains no journal" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
