"""Histories of a torture run, as `holdfast lab check` reads them: judged and printed, or refused with the file's name.

An input is a sound history after some changes to its records, or the text of its two files.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import FailedPreconditionError
from holdfast_lab.check import judge, markdown, render
from holdfast_lab.check.verdict_report import as_json
from holdfast_lab.history.files import RUN
from tests.fuzz.depth import DEEP_JSON
from tests.fuzz.parts import packed, unpacked
from tests.fuzz.source import Source
from tests.unit.lab_check.sound_history import sound

EXAMPLES = 80

_LINES = "clients.jsonl"
_TEXT, _CHANGED = 0, 1
_CHANGES_MAX = 6
#: More records would test nothing else.
_RECORDS_MAX = 30
_WORDS = ("first", "second", "submit", "retry", "op1", "op2", "hourly", "fired")


@cache
def _folder() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    made = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
    return made, Path(made.name)


@cache
def _sound() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A sound history as plain values."""
    run, records = sound()
    return msgspec.to_builtins(run), msgspec.to_builtins(records)


def seeds() -> list[bytes]:
    """Whole texts, damaged ones, and changes of every kind to every part of the history."""
    run, records = _sound()
    lines = _lines(records[:12])
    texts = [
        (msgspec.json.encode(run), lines),
        (b'{"topology":"\xff","seed":1}', lines),
        (b'{"topology":"t","seed":1,"x":' + DEEP_JSON, lines),
        (msgspec.json.encode(run), lines + b'{"record":"damage","text":"\xff"}\n{"record":'),
        (msgspec.json.encode(run), lines + b'{"record":"damage","text":"","x":' + DEEP_JSON + b"\n"),
        (b"", b""),
    ]
    changes = [bytes([_CHANGED, at, kind, kind, 7 * at % 256, at, 3]) for at in range(0, 120, 6) for kind in range(6)]
    return [*(bytes([_TEXT]) + packed(parts) for parts in texts), *changes]


def fuzz(data: bytes) -> None:
    """Judges a folder, and prints the verdict in every format."""
    source = Source(data)
    if source.below(2) == _TEXT:
        parts = [*unpacked(source.rest()), b"", b""]
        _judge(parts[0], parts[1])
    else:
        run, records = _changed(source)
        _judge(msgspec.json.encode(run), _lines(records))


def _judge(run: bytes, lines: bytes) -> None:
    _, folder = _folder()
    (folder / RUN).write_bytes(run)
    below = folder / "facts"
    below.mkdir()
    (below / _LINES).write_bytes(lines)
    try:
        verdict = judge(folder)
    except FailedPreconditionError as error:
        assert str(folder) in error.message
        return
    finally:
        shutil.rmtree(below)
    assert sum(verdict.read.values()) <= lines.count(b"\n")
    assert "verdict" in render(verdict)
    assert "Verdict" in markdown(verdict)
    msgspec.json.encode(as_json(verdict))


def _lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _changed(source: Source) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run, records = _sound()
    start = source.below(len(records))
    chosen = (records[start:] + records[:start])[:_RECORDS_MAX]
    for _ in range(1 + source.below(_CHANGES_MAX)):
        at = source.below(len(chosen) + 1)
        if at == len(chosen):
            run = _other(source, run, run)
        elif source.is_one_in(4):
            chosen.insert(at, chosen[source.below(len(chosen))])
        else:
            chosen[at] = _other(source, chosen[at], chosen[source.below(len(chosen))])
    return run, chosen


def _other(source: Source, one: dict[str, Any], another: dict[str, Any]) -> dict[str, Any]:
    """The record with one value changed, to that of another record or to a new one."""
    name = source.pick(sorted(one))
    value = another.get(name, one[name]) if source.below(3) == 0 else _like(source, one[name])
    return {**one, name: value}


def _like(source: Source, value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    """Another value, mostly of the same kind."""
    other: Any = value
    if source.is_one_in(12):
        other = source.pick((None, "", 0, [], {}, 1.5))
    elif isinstance(value, bool):
        other = not value
    elif isinstance(value, int | float):
        other = min(max(source.integer(), -(1 << 63)), (1 << 64) - 1)
    elif isinstance(value, str):
        other = source.text(_WORDS).encode("utf-8", "replace").decode()
    elif value and isinstance(value, list):
        at = source.below(len(value))
        other = [*value[:at], _like(source, value[at]), *value[at + source.below(2) :]]
    elif value:
        other = _other(source, value, value)
    return other
