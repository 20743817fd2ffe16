"""Checks of the names in a worker's introduction."""

import re

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Introduction

_NAME = re.compile(limits.NAME_PATTERN)


def check_names(introduction: Introduction) -> None:
    """Refuses invalid names before the backend is called."""
    for what, names in (
        ("worker_id", {introduction.worker_id}),
        ("types", introduction.types),
        ("queues", introduction.queues),
    ):
        for name in names:
            if not _NAME.fullmatch(name):
                rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
                raise InvalidArgumentError(f"{what} must be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
