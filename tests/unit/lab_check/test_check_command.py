"""`holdfast lab check`: reads a folder, checks it and prints the verdict."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.errors import ExitCode, FailedPreconditionError
from holdfast_lab.check import judge, markdown, render
from holdfast_lab.history.files import Writer, write_run
from holdfast_lab.history.records import JobFact, Record, Run
from tests.unit.lab_check.changes import Changed
from tests.unit.lab_check.sound_history import sound


def write(folder: Path, run: Run, records: list[Record]) -> Path:
    """Writes a history to two files, one of them in a subfolder."""
    write_run(folder, run)
    (folder / "facts").mkdir()
    with Writer(folder / "clients.jsonl") as clients, Writer(folder / "facts" / "store.jsonl") as store:
        for record in records:
            (store if isinstance(record, JobFact) else clients).write(record)
    return folder


def broken() -> Changed:
    it = Changed(*sound())
    it.replace(JobFact, {"id": "poison"}, state=3)
    return it


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["holdfast", "lab", "check", *arguments])
    return main()


def test_checker_reads_all_files_of_a_folder(tmp_path: Path) -> None:
    """The checker reads all files of a folder and its subfolders."""
    assert judge(write(tmp_path, *sound())) == Changed(*sound()).judge()


def test_cut_last_line_does_not_count(tmp_path: Path) -> None:
    """An incomplete last line, as a killed writer leaves it, does not count."""
    folder = write(tmp_path, *sound())
    with (folder / "clients.jsonl").open("ab") as file:
        file.write(b'{"record":"damage","text":"half a li')
    assert judge(folder).is_kept


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BAD_LINES = {
    "nothing": b"",
    "zeros": bytes(40),
    "no record": b"{}",
    "a record of an unknown kind": b'{"record":"guess","text":"a"}',
    "a field that there is not": b'{"record":"damage","text":"a","at":1}',
    "a field of another type": b'{"record":"damage","text":1}',
    "no text": b'{"record":"damage","text":"\xff"}',
    "too deep": DEEP,
    "a time that cannot be": b'{"record":"lost","op":"a","at_us":1' + bytes(b"0" * 400) + b"}",
    "two in one": b'{"record":"damage","text":"a"}{"record":"damage","text":"b"}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_line_in_the_middle_that_is_no_record_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    """A damaged history is refused, and the message names the file and the line."""
    folder = write(tmp_path, *sound())
    lines = (folder / "clients.jsonl").read_bytes().split(b"\n")
    (folder / "clients.jsonl").write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]))
    assert check(monkeypatch, str(folder)) == ExitCode.REFUSED
    assert f"{folder / 'clients.jsonl'}:4 is not a record of a history" in capsys.readouterr().err


BAD_RUNS = {
    "nothing": b"",
    "no run": b"[]",
    "too little": b"{}",
    "too deep": DEEP,
    "a schedule without steps": (
        b'{"topology":"a","seed":1,"schedules":[{"name":"a","every_ms":0,"first_ms":0,"last_ms":9}]}'
    ),
}


@pytest.mark.parametrize("text", BAD_RUNS.values(), ids=BAD_RUNS.keys())
def test_run_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    """A damaged `run.json` is refused."""
    folder = write(tmp_path, *sound())
    (folder / "run.json").write_bytes(text)
    assert check(monkeypatch, str(folder)) == ExitCode.REFUSED
    assert f"{folder / 'run.json'} is not a valid run" in capsys.readouterr().err


def test_copy_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of a file is refused, because its records would count twice, but empty files are no copies."""
    folder = write(tmp_path, *sound())
    for name in ("worker-1.jsonl", "worker-2.jsonl"):
        (folder / name).touch()
    assert check(monkeypatch, str(folder)) == ExitCode.DONE
    shutil.copy(folder / "facts" / "store.jsonl", folder / "kept.jsonl")
    assert check(monkeypatch, str(folder)) == ExitCode.REFUSED
    assert f"{folder / 'kept.jsonl'} is a copy of {folder / 'facts' / 'store.jsonl'}" in capsys.readouterr().err


def test_pipe_and_dangling_link_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe and a dangling link are refused, because they may hide records."""
    folder = write(tmp_path, *sound())
    os.mkfifo(folder / "pipe.jsonl")
    assert check(monkeypatch, str(folder)) == ExitCode.REFUSED
    (folder / "pipe.jsonl").unlink()
    (folder / "link.jsonl").symlink_to(folder / "nowhere.jsonl")
    assert check(monkeypatch, str(folder)) == ExitCode.REFUSED
    err = capsys.readouterr().err
    assert f"{folder / 'pipe.jsonl'} cannot be read: it is not a regular file" in err
    assert f"{folder / 'link.jsonl'} cannot be read: No such file or directory" in err


@pytest.mark.parametrize("name", ["facts", "clients.jsonl", "run.json"])
def test_file_without_read_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A folder or file without read permission is refused, because it may contain a violation."""
    folder = write(tmp_path, *sound())
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):  # a folder after its contents
        path.chmod(0o000 if path.name == name else 0o755)
    monkeypatch.chdir(folder)
    try:
        with as_nobody(), pytest.raises(FailedPreconditionError, match="Permission denied"):
            judge(Path())
    finally:
        (folder / name).chmod(0o700)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Drops root's permissions within the block."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_kept_history_ends_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rule is printed with its number of cases."""
    assert check(monkeypatch, str(write(tmp_path, *sound()))) == ExitCode.DONE
    out = capsys.readouterr().out
    assert "verdict: kept" in out
    assert len([line for line in out.splitlines() if " kept " in line and "verdict" not in line]) == 23


def test_broken_history_ends_with_1_and_shows_the_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job's history is printed with times since the start of the run, up to the given number of lines."""
    folder = write(tmp_path, broken().run, broken().records)
    assert check(monkeypatch, str(folder), "--evidence", "3") == ExitCode.JOB_FAILED
    out = capsys.readouterr().out
    assert "poison: poison can only fail (2 times of 2), and is DONE" in out
    assert "sends over grpc: submit poison fails=2" in out
    assert " more …\n" in out


def test_history_that_proves_nothing_ends_with_5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault that was never fired makes the verdict unknown, and is named."""
    run, records = sound()
    run.faults.append("full-disk")
    assert check(monkeypatch, str(write(tmp_path, run, records))) == ExitCode.UNKNOWN
    told = capsys.readouterr().out
    assert "never fired: full-disk\n" in told
    assert "verdict: unknown: no violation was found, but not everything was tested: faults\n" in told


def test_programs_are_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON output has the verdict, the rules, and the findings with their records."""
    folder = write(tmp_path, broken().run, broken().records)
    assert check(monkeypatch, str(folder), "--json") == ExitCode.JOB_FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "broken"
    assert {"poison", "doubly terminal", "illegal"} == {one["rule"] for one in told["findings"]}
    assert told["findings"][0]["evidence"][0]["record"]["record"] == "asked"


def test_folder_without_a_history_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without a history is refused."""
    assert check(monkeypatch, str(tmp_path)) == ExitCode.REFUSED
    assert "must be the directory of a recorded history" in capsys.readouterr().err


def test_report_has_a_row_for_every_rule() -> None:
    """The table for a report and the one for people show the same verdicts."""
    verdict = broken().judge()
    rows = [line for line in markdown(verdict).splitlines() if line.startswith("| ")]
    assert len(rows) == len(verdict.rulings) + 1
    assert "| poison | a job fails after its attempts, and not before | broken 1 | 5 |  |" in rows
    assert "verdict: broken: doubly terminal, illegal, poison" in render(verdict)


def test_hostile_text_cannot_harm_a_terminal() -> None:
    """Names of jobs and faults are printed without control characters."""
    it = Changed(*sound())
    it.replace(JobFact, {"id": "made"}, name="\x1b[2J")
    assert "\x1b" not in render(it.judge())
