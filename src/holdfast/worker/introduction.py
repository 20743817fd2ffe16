"""What a worker may call itself, and what it says it knows."""

import re

from holdfast import limits
from holdfast.errors import InvalidArgumentError
from holdfast.ports import Introduction

_NAME = re.compile(limits.NAME_PATTERN)


def check_names(introduction: Introduction) -> None:
    """What can never be right is told before anybody is asked."""
    for what, names in (
        ("worker_id", {introduction.worker_id}),
        ("types", introduction.types),
        ("queues", introduction.queues),
    ):
        for name in names:
            if not _NAME.fullmatch(name):
                rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits, '.', '_' or '-'"
                raise InvalidArgumentError(f"expected {what} to be {rule}, got {name[:80]!r}", reason="NAME_INVALID")
