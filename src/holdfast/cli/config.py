"""`holdfast config`: the effective settings and their origins."""

import json
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.text import Json, print_json, print_table, printable
from holdfast.settings import ClientSettings, Settings, SettingsError, WorkerSettings, fields_of, shown
from holdfast.settings_sources import load

app = typer.Typer(help="Show the settings.", no_args_is_help=True)

#: A name in several of them has the same meaning and default.
_KINDS: tuple[type[msgspec.Struct], ...] = (Settings, WorkerSettings, ClientSettings)


@app.callback()
def config() -> None:
    """Groups the commands."""


@app.command()
def show(
    with_origin: Annotated[bool, typer.Option("--origin", help="Also show where each value came from.")] = False,
    as_json: Json = False,
) -> None:
    """Show the effective settings.

    They come from the environment, holdfast.toml, pyproject.toml or the defaults.
    """
    rows = _effective()
    if as_json:
        print_json({name: {"value": value, "origin": origin} if with_origin else value for name, value, origin in rows})
    elif with_origin:
        print_table(("SETTING", "VALUE", "ORIGIN"), [(name, _toml(value), origin) for name, value, origin in rows])
    else:
        for name, value, _ in rows:
            print(printable(f"{name} = {_toml(value)}"))


def _effective() -> list[tuple[str, object, str]]:
    """Returns name, masked value and origin of each setting, in the order of the tables of settings."""
    rows: dict[str, tuple[str, object, str]] = {}
    problems: dict[str, None] = {}
    for kind in _KINDS:
        try:
            loaded = load(kind, flags={}, environment=os.environ, folder=Path.cwd())
        except SettingsError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        for name, field in fields_of(kind).items():
            value = shown(field, getattr(loaded.settings, name))
            rows.setdefault(name, (name, value, loaded.origins[name]))
    if problems:
        raise SettingsError(list(problems))
    return list(rows.values())


def _toml(value: object) -> str:
    """Returns the value as in holdfast.toml; JSON writes strings, numbers and booleans the same way."""
    return json.dumps(value, ensure_ascii=False)
