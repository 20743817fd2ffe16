"""Imports the app named as `module:attribute`; its errors say what is wrong and what to do."""

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
    """The part of an app that a worker needs."""

    def handlers(self) -> Mapping[str, Handler]:
        """Returns the handlers by type."""
        ...


@runtime_checkable
class ConnectedApp(App, Protocol):
    """An app that knows where its jobs are kept."""

    def work_api(self) -> WorkApi:
        """Returns the API from which a worker of this app gets its leases."""
        ...


@runtime_checkable
class PlannedApp(App, Protocol):
    """An app that declares schedules."""

    def declared_schedules(self) -> Sequence[ScheduleSpec]:
        """Returns the schedules to set when a worker of this app starts."""
        ...

    async def aset_schedules(self) -> object:
        """Sets the declared schedules in the app's backend."""
        ...


def schedules_of(app: object) -> Sequence[ScheduleSpec]:
    """Returns the schedules that an app declares; empty for an app without support for schedules."""
    return app.declared_schedules() if isinstance(app, PlannedApp) else ()


def load_app(path: str) -> App:
    """Imports an app; the current directory comes first on the import path. `InvalidArgumentError` says what to do."""
    module_name, _, attribute = path.partition(":")
    if module_name.endswith(".py"):
        rest = module_name.removesuffix(".py").replace("/", ".").strip(".")
        raise InvalidArgumentError(
            f"the app must be module:attribute, got {path!r}; name the module without .py: -A {rest}:"
            f"{attribute or 'app'}",
            reason="APP_INVALID",
        )
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise InvalidArgumentError(f"the app must be module:attribute, got {path!r}; {_EXAMPLE}", reason="APP_INVALID")
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
            f"{path!r} must be an app, got {type(found).__name__}; name the variable that holds Holdfast(...)",
            reason="APP_INVALID",
        )
    return found


def import_included(name: str) -> None:
    """Imports a module that an app includes; `InvalidArgumentError` says what is wrong."""
    if name in sys.modules:
        return
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None  # the module exists; a module that it imports does not
        raise InvalidArgumentError(
            f"app.include({name!r}): there is no module {error.name!r} on the import path; use the name that an import"
            " statement would use, and start the program in the folder that contains it, or set PYTHONPATH",
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
            raise _broken(name, error) from None  # the module exists; a module that it imports does not
        raise InvalidArgumentError(
            f"there is no module {error.name!r} in {here} or among the installed packages; start the worker in the"
            f" folder that contains it, or set PYTHONPATH; {_EXAMPLE}",
            reason="APP_NOT_FOUND",
        ) from None
    except BaseException as error:  # noqa: BLE001 - a module may even exit when it is imported
        raise _broken(name, error) from None


def _broken(name: str, error: BaseException) -> InvalidArgumentError:
    """The error of a failed import, with a traceback that begins in the user's module."""
    shown = traceback.TracebackException.from_exception(error, compact=True)
    ours = (__file__, importlib.__file__)
    kept = [frame for frame in shown.stack if frame.filename not in ours and not frame.filename.startswith("<frozen ")]
    shown.stack = traceback.StackSummary.from_list(kept)
    text = "".join(shown.format()).rstrip()
    return InvalidArgumentError(f"importing {name!r} failed:\n{text}", reason="APP_BROKEN")
