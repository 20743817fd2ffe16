"""Where settings come from; they are read once, here, and validated whole.

A value comes from a flag, else from the environment (`HOLDFAST_LEASE_MS`), else from a file (`holdfast.toml`,
or `[tool.holdfast]` in `pyproject.toml`), else from its default. A secret may stand in a file that the environment
names (`HOLDFAST_TOKEN_FILE`). Where each value came from is kept. All problems are reported together. One file and one
environment serve all commands: each takes what concerns it, and a name that concerns none of them is a mistake. A
program that has its jobs within itself says its settings itself.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.settings import (
    FIELDS,
    KNOWN,
    OF_THE_PIPELINE,
    OF_ZOOKEEPER,
    Fields,
    Settings,
    SettingsError,
    choices,
    contradictions,
    fields_of,
    shown,
    wanted,
)

ENVIRONMENT_PREFIX = "HOLDFAST_"
#: What clients and workers show a server; HOLDFAST_TOKEN_FILE names a file that holds it.
TOKEN = f"{ENVIRONMENT_PREFIX}TOKEN"
_TOKEN_FILE = f"{TOKEN}_FILE"
#: Variables with our prefix that are no settings: those of `holdfast lab torture`.
NO_SETTINGS = frozenset({"HOLDFAST_CLOCK_FILE", "HOLDFAST_TORTURE_RECORDS"})

S = TypeVar("S", bound=msgspec.Struct)


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """The settings, and for every field where its value came from."""

    settings: S
    origins: dict[str, str]


class Given(NamedTuple):
    """One value as somebody gave it."""

    name: str
    value: object
    origin: str
    #: Text stands for numbers and switches: true of flags and of the environment, not of files.
    is_text: bool


def load(
    kind: type[S], *, flags: Mapping[str, object | None], environment: Mapping[str, str], folder: Path | None
) -> Loaded[S]:
    """Settings of one kind for a command; a flag of None was not given. Raises SettingsError with every problem.

    Without a folder no file is read.
    """
    problems: list[str] = []
    # From the weakest to the strongest, so that the last one stays.
    given = [
        *(_from_files(folder, problems) if folder is not None else ()),
        *_from_environment(environment, problems),
        *_from_flags(flags, fields_of(kind)),
    ]
    return _validated(kind, given, problems)


def of_program(data: str, values: Mapping[str, object]) -> Settings:
    """Those of a ledger within a program, which says where it is; raises SettingsError with every problem."""
    problems: list[str] = []
    given = [Given("data", data, "URL", is_text=False), *_from_program(values, problems)]
    return _validated(Settings, given, problems).settings


def _validated(kind: type[S], given: Iterable[Given], problems: list[str]) -> Loaded[S]:
    fields = fields_of(kind)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(fields, "default")
    for one in given:
        if one.name in fields:
            values[one.name] = _convert(one, fields, problems)
            origins[one.name] = one.origin
    if not problems:
        settings = kind(**values)
        problems.extend(contradictions(settings) if isinstance(settings, Settings) else ())
    if problems:
        raise SettingsError(problems)
    return Loaded(settings, origins)


def _from_program(values: Mapping[str, object], problems: list[str]) -> Iterator[Given]:
    known = sorted(FIELDS.keys() - {"data"} - OF_THE_PIPELINE - OF_ZOOKEEPER)
    for name, value in values.items():
        if name in known:
            yield Given(name, value, "argument settings", is_text=False)
        else:
            problems.append(_unknown("setting", name, known))


def _from_flags(flags: Mapping[str, object | None], fields: Fields) -> Iterator[Given]:
    for name, value in flags.items():
        assert name in fields, f"a flag for an unknown setting: {name}"
        if value is not None:
            yield Given(name, value, f"flag --{name.replace('_', '-')}", is_text=True)


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[Given]:
    known = {f"{ENVIRONMENT_PREFIX}{name.upper()}": name for name in sorted(KNOWN)}
    for variable, value in sorted(environment.items()):
        if variable in known:
            yield Given(known[variable], value, f"environment {variable}", is_text=True)
        elif variable == _TOKEN_FILE:
            if value:
                yield Given("token", _secret_of(TOKEN, environment, problems), f"environment {variable}", is_text=True)
        elif variable.startswith(ENVIRONMENT_PREFIX) and variable not in NO_SETTINGS:
            problems.append(_unknown("environment variable", variable, [*known]))


def secret_of(variable: str, environment: Mapping[str, str]) -> str:
    """The value of a variable, or of the file that its twin with _FILE names; SettingsError if there are both."""
    problems: list[str] = []
    value = _secret_of(variable, environment, problems)
    if problems:
        raise SettingsError(problems)
    return value


def _secret_of(variable: str, environment: Mapping[str, str], problems: list[str]) -> str:
    value, path = environment.get(variable, ""), environment.get(f"{variable}_FILE", "")
    if not path:
        return value
    if value:
        problems.append(f"expected {variable} or {variable}_FILE, got both")
        return ""
    try:
        secret = Path(path).read_text(encoding="ascii").strip()
        why = "" if secret else "it is empty"
    except (OSError, ValueError) as error:
        secret, why = "", str(error.strerror) if isinstance(error, OSError) else "it is not ASCII text"
    if why:
        problems.append(f"expected {variable}_FILE to name a file with the value of {variable}, got {path!r}: {why}")
    return secret


def _from_files(folder: Path, problems: list[str]) -> Iterator[Given]:
    own = _read_toml(folder / "holdfast.toml", problems)
    shared = _table(_table(_read_toml(folder / "pyproject.toml", problems), "tool"), "holdfast")
    if own and shared:
        problems.append("expected settings to be in one file, got both holdfast.toml and pyproject.toml")
    name, table = ("holdfast.toml", own) if own else ("pyproject.toml", shared)
    for key, value in table.items():
        if key in KNOWN:
            yield Given(key, value, f"file {name}", is_text=False)
        else:
            problems.append(_unknown(f"key in {name}", key, sorted(KNOWN)))


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    return table if isinstance(table, dict) else {key: table}


def _read_toml(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"expected {path.name} to be a readable TOML file, got: {error}")
        return {}


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"expected every {what} to be a known one, got {name}{hint}"


def _convert(given: Given, fields: Fields, problems: list[str]) -> object:
    field = fields[given.name]
    value = given.value
    if isinstance(value, str) and choices(given.name, fields):
        value = value.lower()
    try:
        return msgspec.convert(value, field.type, strict=not given.is_text)
    except (msgspec.ValidationError, UnicodeEncodeError):
        got = shown(field, given.value)
        problems.append(f"expected {given.name} to be {wanted(given.name, fields)}, got {got!r} ({given.origin})")
        return field.default
