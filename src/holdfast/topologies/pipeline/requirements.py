"""What the pipeline needs beyond the product itself."""

import importlib.util

from holdfast.errors import FailedPreconditionError

_MODULES = ("aiohttp", "psycopg", "psycopg_pool")


def need_packages() -> None:
    """`FailedPreconditionError` says what is missing, and how to get it."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise FailedPreconditionError(
            f"the pipeline needs {' and '.join(missing)}: pip install 'holdfast[pipeline]'", reason="PACKAGES_MISSING"
        )
