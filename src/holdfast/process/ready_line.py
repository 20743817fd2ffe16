"""The ready line: the line on standard output that a program prints when it is ready."""

import json
import sys
from collections.abc import Collection, Mapping

_NAMES_MAX = 8


def announce(line: Mapping[str, object], sentence: str) -> None:
    """Prints the ready line: JSON for the parent process, or a sentence on a terminal, in a single write."""
    sys.stdout.write(f"{sentence if sys.stdout.isatty() else json.dumps(line)}\n")
    sys.stdout.flush()


def few(names: Collection[str]) -> str:
    """Returns the first names, and the number of the others."""
    shown = sorted(names)[:_NAMES_MAX]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def places(addresses: Mapping[str, str], *, is_secure: bool) -> str:
    """Returns a sentence on how to connect. `addresses` are by protocol; that of gRPC may be a list."""
    secure, address = "s" if is_secure else "", addresses.get("grpc") or addresses["wire"]
    page = f"; http{secure}://{addresses['http']}/ shows them" if "http" in addresses else ""
    return f'Holdfast("holdfast{secure}://{address}"), or --connect {address}{page}'
