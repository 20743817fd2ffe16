"""Settings from files, the environment and flags: read, or refused with the name of the wrong setting."""

import tempfile
from functools import cache
from pathlib import Path

from holdfast.settings import KNOWN, ClientSettings, Settings, SettingsError, WorkerSettings, fields_of
from holdfast.settings_sources import ENVIRONMENT_PREFIX, load, of_program
from tests.fuzz.source import Source

EXAMPLES = 200
IS_GUIDED = False

_Any = Settings | WorkerSettings | ClientSettings
_KINDS: tuple[type[_Any], ...] = (Settings, WorkerSettings, ClientSettings)
_NAMES = sorted(KNOWN)
_SECRET = "hf_neverShownToAnybody"
_FILES = (
    'lease_ms = 5000\ndata = "x"\n',
    'port = 70000\nhost = ["a"]\n',
    "lease_ms = 1_0\n[table]\na = 1\n",
    "lease_ms = inf\nport = 1979-05-27T07:32:00Z\n",
    f'token = "{_SECRET} "\n',
    "x = " + "[" * 3_000 + "]" * 3_000,
    "x = " + "{a=" * 3_000 + "1" + "}" * 3_000,
    "port = " + "9" * 5_000,
    "\ufeffport = 1",
)


@cache
def _folder() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    made = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
    return made, Path(made.name)


def seeds() -> list[bytes]:
    """Files, and names with values of several kinds."""
    files = [bytes([0, 0, 0]) + text.encode() for text in _FILES]
    shared = [bytes([0, 1, 0]) + b"[tool.holdfast]\n" + text.encode() for text in _FILES]
    named = [
        bytes([kind, 2, number, 3, 0, value]) for kind in range(3) for number in range(0, 60, 4) for value in (3, 9)
    ]
    return files + shared + named


def fuzz(data: bytes) -> None:
    """Loads settings of one kind from one source."""
    source = Source(data)
    kind, where = source.pick(_KINDS), source.below(4)
    try:
        if where < 2:
            _from_file(kind, ("holdfast.toml", "pyproject.toml")[where], source)
        elif where == 2:
            variables = {
                f"{ENVIRONMENT_PREFIX}{_name(source).upper()}": _text(source) for _ in range(1 + source.below(3))
            }
            variables[f"{ENVIRONMENT_PREFIX}TOKEN"] = f"{_SECRET}{source.text()}"
            load(kind, flags={}, environment=variables, folder=None)
        else:
            names = sorted(fields_of(kind))
            flags = {source.pick(names): source.pick((_text(source), source.integer(), True, None)) for _ in range(3)}
            load(kind, flags=flags, environment={}, folder=None)
            of_program("memory://", {_name(source): source.pick((_text(source), source.integer(), 1.5, [], {}))})
    except SettingsError as error:
        assert error.problems
        assert _SECRET not in error.message, "a token was shown"
        for problem in error.problems:
            written = problem.replace("-", "_")  # a flag is named as the user wrote it
            assert any(name in written for name in (*KNOWN, ".toml", ENVIRONMENT_PREFIX, "setting")), problem


def _from_file(kind: type[_Any], name: str, source: Source) -> None:
    _, folder = _folder()
    source.take(1)
    path = folder / name
    path.write_bytes(source.rest())
    try:
        loaded = load(kind, flags={}, environment={}, folder=folder)
    finally:
        path.unlink()
    assert set(loaded.origins) == set(fields_of(kind))


def _name(source: Source) -> str:
    return source.pick(_NAMES) if source.below(8) else source.text()


def _text(source: Source) -> str:
    return source.text(("true", "false", "0", "1", "5000", "127.0.0.1", "0.0.0.0", "debug", "a:1"))  # noqa: S104
