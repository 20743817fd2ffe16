"""Finds the app that somebody names as `module:attribute`, and says in a sentence what is wrong when it cannot."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import InvalidArgumentError
from holdfast.ports import ScheduleSpec, WorkApi
from holdfast.worker.handlers import Handler

_EXAMPLE = "for example -A shop.jobs:app for the variable `app` in shop/jobs.py"


@runtime_checkable
class App(Protocol):
    """What a worker needs of an app."""

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by type."""
        ...


@runtime_checkable
class ConnectedApp(App, Protocol):
    """An app that knows where its jobs are kept."""

    def work_api(self) -> WorkApi:
        """Where a worker of this app gets its work."""
        ...


@runtime_checkable
class PlannedApp(App, Protocol):
    """An app whose jobs are made by time, too."""

    def declared_schedules(self) -> Sequence[ScheduleSpec]:
        """What is to be set when a worker of it starts."""
        ...

    async def aset_schedules(self) -> object:
        """Sets them where the app keeps its jobs."""
        ...


def schedules_of(app: object) -> Sequence[ScheduleSpec]:
    """What an app wants to be set; nothing for one that knows no schedules."""
    return app.declared_schedules() if isinstance(app, PlannedApp) else ()


def load_app(path: str) -> App:
    """The app; `InvalidArgumentError` says what to do. The current directory is looked in first."""
    module_name, _, attribute = path.partition(":")
    if module_name.endswith(".py"):
        rest = module_name.removesuffix(".py").replace("/", ".").strip(".")
        raise InvalidArgumentError(
            f"expected the app to be module:attribute, got {path!r}; a module is named without .py: -A {rest}:"
            f"{attribute or 'app'}",
            reason="APP_INVALID",
        )
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise InvalidArgumentError(
            f"expected the app to be module:attribute, got {path!r}; {_EXAMPLE}", reason="APP_INVALID"
        )
    module = _module(module_name)
    try:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise InvalidArgumentError(
            f"the module {module_name!r} ({module.__file__}) has no {attribute!r}; {_apps_of(module)}",
            reason="APP_NOT_FOUND",
        ) from None
    if not isinstance(found, App) or isinstance(found, type):
        raise InvalidArgumentError(
            f"expected {path!r} to be an app, got {type(found).__name__}; name the variable that holds Holdfast(...)",
            reason="APP_INVALID",
        )
    return found


def import_included(name: str) -> None:
    """Import a module that an app names as part of itself; `InvalidArgumentError` says what is wrong."""
    if name in sys.modules:
        return
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None  # the module is there; something that it imports is not
        raise InvalidArgumentError(
            f"app.include({name!r}): there is no module {error.name!r} here or in what is installed; name it as an"
            " import statement would, and start the program in the folder that holds it, or set PYTHONPATH",
            reason="MODULE_NOT_FOUND",
        ) from None
    except BaseException as error:  # noqa: BLE001 - a module may even exit when it is imported
        raise _broken(name, error) from None


def _apps_of(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App) and not isinstance(value, type)]
    return f"its apps are: {', '.join(apps)}" if apps else "name the variable that holds Holdfast(...)"


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None  # the module is there; something that it imports is not
        raise InvalidArgumentError(
            f"there is no module {error.name!r} in {here} or in what is installed; start the worker in the folder that"
            f" holds it, or set PYTHONPATH; {_EXAMPLE}",
            reason="APP_NOT_FOUND",
        ) from None
    except BaseException as error:  # noqa: BLE001 - a module may even exit when it is imported
        raise _broken(name, error) from None


def _broken(name: str, error: BaseException) -> InvalidArgumentError:
    """The user's own traceback, from the first line of their module on."""
    shown = traceback.TracebackException.from_exception(error, compact=True)
    ours = (__file__, importlib.__file__)
    kept = [frame for frame in shown.stack if frame.filename not in ours and not frame.filename.startswith("<frozen ")]
    shown.stack = traceback.StackSummary.from_list(kept)
    text = "".join(shown.format()).rstrip()
    return InvalidArgumentError(f"importing {name!r} failed:\n{text}", reason="APP_BROKEN")
