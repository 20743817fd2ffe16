"""SQL statements by name: in `statements/<part>.sql`, a line `-- name: <name>` precedes each statement."""

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def statements(package: str, part: str) -> Mapping[str, bytes]:
    """Returns all statements of a part of a package, as bytes for psycopg."""
    text = (resources.files(package) / "statements" / f"{part}.sql").read_text()
    _, *pieces = _NAMED.split(text)
    return MappingProxyType({name: body.strip().encode() for name, body in zip(pieces[::2], pieces[1::2], strict=True)})
