"""`holdfast config`: which settings are in force, and where each came from."""

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

#: Names in several of them mean the same and have the same default.
_KINDS: tuple[type[msgspec.Struct], ...] = (Settings, WorkerSettings, ClientSettings)


@app.callback()
def config() -> None:
    """Groups the commands."""


@app.command()
def show(
    with_origin: Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting in force here. From the environment, holdfast.toml or pyproject.toml, or its default."""
    rows = _effective()
    if as_json:
        print_json({name: {"value": value, "origin": origin} if with_origin else value for name, value, origin in rows})
    elif with_origin:
        print_table(("SETTING", "VALUE", "ORIGIN"), [(name, _toml(value), origin) for name, value, origin in rows])
    else:
        for name, value, _ in rows:
            print(printable(f"{name} = {_toml(value)}"))


def _effective() -> list[tuple[str, object, str]]:
    """Name, value as it may be shown, and origin; in the order of the tables of settings."""
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
    """As it would stand in holdfast.toml; JSON writes text, numbers and switches in the same way."""
    return json.dumps(value, ensure_ascii=False)
