"""The optional packages that the pipeline needs."""

import importlib.util

from holdfast.errors import FailedPreconditionError

_MODULES = ("aiohttp", "psycopg", "psycopg_pool")


def need_packages() -> None:
    """Raises `FailedPreconditionError` if a package is missing, with the command that installs it."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise FailedPreconditionError(
            f"the pipeline needs {' and '.join(missing)}: pip install 'holdfast[pipeline]'", reason="PACKAGES_MISSING"
        )
