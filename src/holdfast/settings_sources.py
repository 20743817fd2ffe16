"""Reads settings from flags, environment and files, once, and validates all of them together.

A value comes from a flag, else from the environment (`HOLDFAST_LEASE_MS`), else from a file (`holdfast.toml`,
or `[tool.holdfast]` in `pyproject.toml`), else from its default. The environment may name a file that
contains a secret (`HOLDFAST_TOKEN_FILE`). The origin of each value is kept. All problems are reported together. All
commands share one file and one environment: each command reads its own settings, and a name that no command knows is
an error. A program that embeds a ledger passes its settings as arguments.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast.settings import (
    FIELDS,
    KNOWN,
    Fields,
    Settings,
    SettingsError,
    choices,
    contradictions,
    fields_of,
    option_of,
    shown,
    wanted,
)
from holdfast.topologies.table import OWN_SETTINGS

ENVIRONMENT_PREFIX = "HOLDFAST_"
#: The token of clients and workers; HOLDFAST_TOKEN_FILE names a file that contains it.
TOKEN = f"{ENVIRONMENT_PREFIX}TOKEN"
_TOKEN_FILE = f"{TOKEN}_FILE"
#: Variables with this prefix that are not settings; `holdfast lab torture` sets them.
NO_SETTINGS = frozenset({"HOLDFAST_CLOCK_FILE", "HOLDFAST_TORTURE_RECORDS"})

_OF_THE_SAME_NAMES: Mapping[str, str] = MappingProxyType({})

S = TypeVar("S", bound=msgspec.Struct)


class LoadedSettings(msgspec.Struct, Generic[S], frozen=True):
    """The settings, and the origin of every value."""

    settings: S
    origins: dict[str, str]


class GivenValue(NamedTuple):
    """One value as the user wrote it."""

    name: str
    value: object
    origin: str
    #: Whether numbers and booleans are written as text: in flags and the environment, not in files.
    is_text: bool


def load(
    kind: type[S],
    *,
    flags: Mapping[str, object | None],
    environment: Mapping[str, str],
    folder: Path | None,
    options: Mapping[str, str] = _OF_THE_SAME_NAMES,
) -> LoadedSettings[S]:
    """Returns the settings of one kind for a command. Raises SettingsError with all problems.

    A flag that is None was not given. Without a folder no file is read. `options` has the options of the command whose
    names differ from those of their settings, for error messages.
    """
    problems: list[str] = []
    # In ascending precedence: later values replace earlier ones.
    given = [
        *(_from_files(folder, problems) if folder is not None else ()),
        *_from_environment(environment, problems),
        *_from_flags(flags, fields_of(kind)),
    ]
    return _validated(kind, given, problems, lambda name: options.get(name) or option_of(name))


def of_program(data: str, values: Mapping[str, object]) -> Settings:
    """Returns the settings of a ledger that a program embeds. Raises SettingsError with all problems."""
    problems: list[str] = []
    given = [GivenValue("data", data, "URL", is_text=False), *_from_program(values, problems)]
    return _validated(Settings, given, problems, str).settings


def _validated(
    kind: type[S], given: Iterable[GivenValue], problems: list[str], option: Callable[[str], str]
) -> LoadedSettings[S]:
    fields = fields_of(kind)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(fields, "default")
    written = {name: option(name) for name in fields}
    for one in given:
        if one.name in fields:
            origins[one.name] = one.origin
            written[one.name] = _as_written(one, option(one.name))
            values[one.name] = _convert(one, written[one.name], fields, problems)
    if not problems:
        settings = kind(**values)
        problems.extend(contradictions(settings, written.__getitem__) if isinstance(settings, Settings) else ())
    if problems:
        raise SettingsError(problems)
    return LoadedSettings(settings, origins)


def _from_program(values: Mapping[str, object], problems: list[str]) -> Iterator[GivenValue]:
    known = sorted(FIELDS.keys() - {"data"} - OWN_SETTINGS)
    for name, value in values.items():
        if name in known:
            yield GivenValue(name, value, "argument settings", is_text=False)
        else:
            problems.append(_unknown("setting", name, known))


def _from_flags(flags: Mapping[str, object | None], fields: Fields) -> Iterator[GivenValue]:
    for name, value in flags.items():
        assert name in fields, f"a flag for an unknown setting: {name}"
        if value is not None:
            yield GivenValue(name, value, f"flag {option_of(name)}", is_text=True)


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[GivenValue]:
    known = {f"{ENVIRONMENT_PREFIX}{name.upper()}": name for name in sorted(KNOWN)}
    for variable, value in sorted(environment.items()):
        if variable in known:
            yield GivenValue(known[variable], value, f"environment {variable}", is_text=True)
        elif variable == _TOKEN_FILE:
            if value:
                yield GivenValue(
                    "token", _secret_of(TOKEN, environment, problems), f"environment {variable}", is_text=True
                )
        elif variable.startswith(ENVIRONMENT_PREFIX) and variable not in NO_SETTINGS:
            problems.append(_unknown("environment variable", variable, [*known]))


def secret_of(variable: str, environment: Mapping[str, str]) -> str:
    """Returns the value of a variable, or of the file that `<variable>_FILE` names; SettingsError if both are set."""
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
        problems.append(f"{variable}_FILE must name a file with the value of {variable}, got {path!r}: {why}")
    return secret


def _from_files(folder: Path, problems: list[str]) -> Iterator[GivenValue]:
    own = _read_toml(folder / "holdfast.toml", problems)
    shared = _table(_table(_read_toml(folder / "pyproject.toml", problems), "tool"), "holdfast")
    if own and shared:
        problems.append("settings must be in one file, got both holdfast.toml and pyproject.toml")
    name, table = ("holdfast.toml", own) if own else ("pyproject.toml", shared)
    for key, value in table.items():
        if key in KNOWN:
            yield GivenValue(key, value, f"file {name}", is_text=False)
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
        problems.append(f"{path.name} must be a readable TOML file, got: {error}")
        return {}


def _as_written(given: GivenValue, option: str) -> str:
    """Returns the name of a setting as the user wrote it: an option, a variable, or a key and its file."""
    kind, _, name = given.origin.partition(" ")
    return {"flag": option, "environment": name, "file": f"{given.name} in {name}"}.get(kind, given.name)


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown {what}: {name}{hint}"


def _convert(given: GivenValue, written: str, fields: Fields, problems: list[str]) -> object:
    field = fields[given.name]
    value = given.value
    if isinstance(value, str) and choices(given.name, fields):
        value = value.lower()
    try:
        return msgspec.convert(value, field.type, strict=not given.is_text)
    except (msgspec.ValidationError, UnicodeEncodeError):
        got = shown(field, given.value)
        problems.append(f"{written} must be {wanted(given.name, fields)}, got {got!r}")
        return field.default
