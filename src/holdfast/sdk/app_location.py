"""The import path of an app, for child processes that run its jobs."""

import sys
from collections.abc import Iterable
from pathlib import Path


def path_of(app: object, modules: Iterable[str]) -> str:
    """Returns `module:attribute` of the app if one of these modules has it in a variable; else an empty string."""
    for name in dict.fromkeys(modules):
        module = sys.modules.get(name)
        for attribute, value in vars(module).items() if module is not None else ():
            if value is app:
                importable = _importable(name)
                return f"{importable}:{attribute}" if importable else ""
    return ""


def _importable(name: str) -> str:
    """The name by which another process can import the module; for the main module, that of its spec or file."""
    if name != "__main__":
        return name
    main = sys.modules[name]
    if main.__spec__ is not None:
        return main.__spec__.name
    file = Path(getattr(main, "__file__", "") or "")
    is_found = file.suffix == ".py" and file.stem.isidentifier() and file.absolute().parent == Path.cwd()
    return file.stem if is_found else ""
